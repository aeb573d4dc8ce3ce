"""Recording that loses nothing: journals beside a trial, and their delivery to the store."""
