"""Trials on Ray: the cluster, its workers, Tune's trials and progress. Nothing else in featurelab imports Ray."""
