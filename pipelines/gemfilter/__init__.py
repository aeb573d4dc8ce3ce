"""Shi, Ming, Nguyen, Liang, Joty 2024, arXiv:2409.17422: discovering the gems in early layers (GemFilter)."""
