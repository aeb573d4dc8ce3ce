"""Where results live: the MLflow store, the recorder a trial writes to, bulk reading, provenance and the report."""

import lazy_loader as lazy

from featurelab._lab import require

require(__name__)

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
