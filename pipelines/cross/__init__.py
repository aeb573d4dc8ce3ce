"""Measures of all papers taken together on the networks of each: what no paper shows."""
