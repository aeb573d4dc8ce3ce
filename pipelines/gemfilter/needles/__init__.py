"""Figures on a needle in a haystack: a small Llama that learned to retrieve reads shortened prompts."""
