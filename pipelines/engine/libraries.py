"""The libraries that figures are written with, each imported at its first use.

`featurelab list` declares every figure, and should not wait for SciPy, Matplotlib and torch. This is one of two ways of
lazy loading here. The other is `lazy_loader.attach_stub`, for the names of our own packages. It cannot name libraries,
and `lazy_loader.load`, which could, fails in two ways (version 0.6, Python 3.11). To load `scipy.stats` or
`matplotlib.colors` lazily, it imports NumPy, SciPy and Matplotlib at once, which takes 1 s. And it puts a module that
is not loaded yet into `sys.modules`, where a second thread that uses it finds that "module 'torch' has no attribute
'tensor'".
"""

import importlib
from typing import TYPE_CHECKING, Any

from pydantic import Field, model_validator

from featurelab.modules import data, decoding, language, learners, measures, nets, probes, theory

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    import pytorch_lightning as pl
    import torch
    from matplotlib import colors
    from scipy import stats

    from featurelab.tracking import Recorder

    mpl: Any  # its type stubs lack `cycler`
else:

    class Library:
        """Stands for a module, or for a class in it, which is imported when one of its attributes is first used."""

        def __init__(self, module: str, name: str = "") -> None:
            self._module, self._class = module, name

        def __getattr__(self, attribute: str) -> Any:
            target = importlib.import_module(self._module)
            value = getattr(getattr(target, self._class) if self._class else target, attribute)
            setattr(self, attribute, value)
            return value

    colors = Library("matplotlib.colors")
    mpl = Library("matplotlib")
    np = Library("numpy")
    pd = Library("pandas")
    pl = Library("pytorch_lightning")
    stats = Library("scipy.stats")
    torch = Library("torch")
    Recorder = Library("featurelab.tracking", "Recorder")  # imports MLflow, and figures need it for annotations only

__all__ = [
    "Field",
    "Recorder",
    "colors",
    "data",
    "decoding",
    "language",
    "learners",
    "measures",
    "model_validator",
    "mpl",
    "nets",
    "np",
    "pd",
    "pl",
    "probes",
    "stats",
    "theory",
    "torch",
]
