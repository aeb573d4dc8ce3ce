"""Data in memory: tensors and loaders with repeatable batches, other labels, random changes of images."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
