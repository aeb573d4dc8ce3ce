"""Measures taken every so often during any Lightning fit, as callbacks."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
