"""Which kernels the numerical libraries choose on this processor: float sums differ in their last bits between them."""

import os
import sys
from functools import lru_cache

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
    for library in threadpool_info():
        if library["user_api"] == "blas":
            kind = library.get("architecture") or ""
            found[f"{library['internal_api']} kernels"] = f"{library.get('version') or ''} {kind}".strip()
    return found
