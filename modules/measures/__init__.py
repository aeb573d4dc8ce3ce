"""Pure functions on tensors and networks: gradients, feature ansatz, kernels, spectra, neural collapse, alignment."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
