"""The subcommands: a file for each, or for a few that belong together."""
