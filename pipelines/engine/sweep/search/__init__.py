"""What a sweep looks for: its metrics, the next settings to try, the best trials."""
