"""Closed forms and constructions of single papers, one file or folder for each system."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
