"""Faults, caused one after another while sweeps run, and an audit of what is stored in the end: `make chaos`."""
