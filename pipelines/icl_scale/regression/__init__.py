"""Figures on linear regression in context."""
