"""What came of a sweep: judged, drawn, compared, repeated."""
