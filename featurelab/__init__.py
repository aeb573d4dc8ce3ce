"""The open laboratory for feature learning: published figures as judged, tracked, repeatable sweeps."""

import lazy_loader

from featurelab import namesake

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
namesake.warn()
