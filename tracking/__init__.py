"""Where results live: the MLflow store, the recorder of a trial, reading in bulk, provenance, the report."""

import lazy_loader as lazy

from featurelab._lab import require

require(__name__)

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
