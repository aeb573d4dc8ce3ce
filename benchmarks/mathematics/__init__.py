"""Benchmarks of measures, decoding and Recursive Feature Machines."""
