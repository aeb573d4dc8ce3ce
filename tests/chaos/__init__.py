"""Cause faults while sweeps run, and audit what is stored in the end: `make chaos`."""
