"""Train a learner inside a trial, and give what it became to whoever asks for it."""
