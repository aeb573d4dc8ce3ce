"""Shi, Ming, Fan, Sala, Liang 2024, arXiv:2303.07527: domain generalisation by the nuclear norm of features."""
