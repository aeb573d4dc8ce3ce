"""The command line: what is typed, and what is shown."""
