"""Which kernels the numerical libraries choose on this processor: float sums differ in their last bits between them."""

import os
import sys
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from threadpoolctl import threadpool_info

from featurelab.tracking.lines import line

# by which a user, or a container, makes the libraries choose otherwise than the processor alone would
VARIABLES = (
    "ATEN_CPU_CAPABILITY",
    "DNNL_MAX_CPU_ISA",
    "MKL_CBWR",
    "MKL_DEBUG_CPU_TYPE",
    "MKL_ENABLE_INSTRUCTIONS",
    "NPY_DISABLE_CPU_FEATURES",
    "ONEDNN_DEFAULT_FPMATH_MODE",
    "ONEDNN_MAX_CPU_ISA",
    "OPENBLAS_CORETYPE",
)


def dispatch() -> dict[str, str]:
    """The instruction set of torch, the kernels of each BLAS that is loaded, and variables that choose others."""
    set_by_hand = {name: line(os.environ[name], 100) for name in VARIABLES if name in os.environ}
    return _kernels(len(sys.modules)) | set_by_hand


@lru_cache(1)
def _kernels(modules: int) -> dict[str, str]:
    """What is loaded; it is looked for again once more modules are."""
    found = {"torch kernels": torch.backends.cpu.get_cpu_capability()}
    # of several of one kind NumPy's counts: whether those of others are loaded by now depends on what ran before
    for library in sorted(threadpool_info(), key=_of_numpy):
        if library["user_api"] == "blas":
            kind = library.get("architecture") or ""
            found[f"{library['internal_api']} kernels"] = f"{library.get('version') or ''} {kind}".strip()
    return found


def _of_numpy(library: Mapping[str, Any]) -> bool:
    return "numpy" in Path(library["filepath"]).parent.name
