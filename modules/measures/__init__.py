"""Pure functions on tensors and networks: instruments that work on any network."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
