"""Gradients of a network: AGOP, tangent features and kernels, and the neural feature ansatz."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
