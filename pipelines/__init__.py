"""The words that figures are written in: an experiment's file imports everything from here.

`__init__.pyi` lists them, each with the module of the engine that it is loaded from when a figure first asks for it.
"""

import lazy_loader

from featurelab._lab import require

require(__name__)
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
