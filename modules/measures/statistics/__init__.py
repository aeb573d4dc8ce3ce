"""Statistics and costs: agreement of rankings, margins, selected tokens, counted operations."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
