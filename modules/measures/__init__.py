"""Pure functions on tensors and networks: gradients, the neural feature ansatz, kernels, early time, spectra."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
