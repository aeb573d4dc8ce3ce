"""One page of all verdicts, and the look that it shares with the site of the documentation."""
