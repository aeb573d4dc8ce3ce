"""Prompts of in-context tasks, needles in haystacks, and a curriculum of tasks."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
