"""Recording that loses nothing: journals beside a trial, and how they reach the store."""
