"""Shi, Wei, Xu, Liang 2024, arXiv:2405.19592: why larger language models do in-context learning differently."""
