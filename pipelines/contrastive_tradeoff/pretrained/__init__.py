"""Figures on networks that are pre-trained here on unions of picture sets."""
