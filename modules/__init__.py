"""What is trained and measured: networks, data, learners, measures, probes. Knows no Ray and no MLflow.

Annotations say the shapes of arrays. Axes of one name in a signature are of one length; those whose name begins with an
underscore, and shapes "...", the function compares itself where they matter.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
