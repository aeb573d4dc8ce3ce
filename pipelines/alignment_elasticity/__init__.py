"""Anonymous, under review: "Emergence of Alignment and Local Elasticity in Two-Layer Neural Networks".

One gradient step aligns features and moves them, also those of classes never trained on. Deeper networks learn images.
"""
