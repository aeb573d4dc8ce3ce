"""Anonymous, under review: "Emergence of Alignment and Local Elasticity in Two-Layer Neural Networks".

One gradient step aligns features and moves them, of classes that it never saw too; deeper networks on images.
"""
