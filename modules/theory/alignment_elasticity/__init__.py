"""What theory says of two-layer networks after one gradient step, and the Hermite expansions behind it."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
