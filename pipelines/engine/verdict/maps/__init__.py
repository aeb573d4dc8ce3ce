"""Where the claims of a figure hold: its grid judged at many settings, one picture a claim."""
