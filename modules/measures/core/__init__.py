"""How a network is run and read: its samples, layers and passes, and class indices of labels."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
