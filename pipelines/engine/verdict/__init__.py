"""The results of a sweep: judged, drawn, compared, repeated."""
