"""What is trained and measured: networks, data, learners, measures, probes. Knows no Ray and no MLflow."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
