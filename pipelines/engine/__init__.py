"""The way from a figure to its verdicts: what an experiment is, a trial, a sweep, a verdict, the command line."""
