"""Shi, Wei, Liang 2023, arXiv:2310.12408: provable guarantees for neural networks via gradient feature learning.

Also Z. Shi's dissertation of 2024, chapter 3 and appendix B, whose lemmas are cited. It shows no figure or table of
measurements: every figure here is one that a definition, lemma or theorem implies, and every paper value a theoretical
one.
"""
