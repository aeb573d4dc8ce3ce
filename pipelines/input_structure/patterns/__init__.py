"""Figures on inputs made of patterns: sums of columns of a dictionary, labelled by which are present."""
