"""Greedy decoding of any causal language model from a part of the prompt, or of its keys and values."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
