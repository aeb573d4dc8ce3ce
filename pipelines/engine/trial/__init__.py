"""One run of an experiment: made deterministic, fitted, recorded, checkpointed."""
