"""Networks made of other networks: side by side, linearised, siamese, with frozen statistics."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
