"""Spectra of matrices and of functions of residues, and the directions of weights."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
