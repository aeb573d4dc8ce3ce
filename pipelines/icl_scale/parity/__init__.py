"""Figures on parities in context."""
