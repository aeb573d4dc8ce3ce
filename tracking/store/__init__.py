"""The MLflow store: connecting, reading in bulk, artifacts, patience."""
