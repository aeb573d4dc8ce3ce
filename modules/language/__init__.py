"""Causal language models, published ones and our own: prompts, scores, attention; published encoders; digests."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
