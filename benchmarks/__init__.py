"""Benchmarks of featurelab against the usual alternatives."""
