"""The MLflow store: connect, write and read runs, read in bulk, artifacts."""
