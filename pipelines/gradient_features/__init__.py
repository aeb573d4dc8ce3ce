"""Shi, Wei, Liang 2023, arXiv:2310.12408: provable guarantees for neural networks via gradient feature learning.

Lemmas are cited from Z. Shi's dissertation of 2024, chapter 3 and appendix B. The paper shows no measurements: every
figure here tests what a definition, lemma or theorem implies, and every paper value is theoretical.
"""
