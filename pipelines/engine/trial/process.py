"""The process of a trial: deterministic, with a fixed number of threads, and with its memory given back."""

import ctypes
import gc
import os
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache

import numpy as np
import torch
from threadpoolctl import ThreadpoolController

from featurelab.pipelines.engine.experiment.config import Config


@contextmanager
def deterministic(config: Config) -> Iterator[None]:
    """Inside, algorithms are deterministic, threads as many as configured, and the global generators seeded.

    Our own code draws from named streams; the seeds are for code that does not: dropout, or somebody else's network.
    """
    # cuBLAS reads this at its first use: without it, its reductions may differ from run to run
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    os.environ.setdefault("TORCHINDUCTOR_DETERMINISTIC", "1")  # torch.compile reads it when it is imported
    random.seed(config.streams.order)
    np.random.seed(config.streams.order % 2**32)  # noqa: NPY002 - the legacy generator is what others may use
    torch.manual_seed(config.streams.order)
    threads = torch.get_num_threads()
    torch.set_num_threads(config.threads)
    torch.set_deterministic_debug_mode("error")  # `use_deterministic_algorithms` would import torch.compile: 2 s
    try:
        with _native_libraries(len(sys.modules)).limit(limits=config.threads):
            yield
    finally:
        torch.set_deterministic_debug_mode("default")
        torch.set_num_threads(threads)


@lru_cache(1)
def _native_libraries(modules: int) -> ThreadpoolController:
    """The thread pools of BLAS and OpenMP; looked up again when the number of imported modules has changed."""
    return ThreadpoolController()


@contextmanager
def sharing_memory(gpu: float) -> Iterator[None]:
    """Return the memory of a trial when it has ended, for other trials on this machine.

    With `gpu`, a share in (0, 1], this process gets no more than that share of the GPU's memory: a trial that needs
    more runs out of memory itself, instead of the trials beside it.
    """
    on_gpu = gpu > 0 and torch.cuda.is_available()
    if on_gpu:
        torch.cuda.set_per_process_memory_fraction(min(gpu, 1.0))
    try:
        yield
    finally:
        gc.collect()  # trainers and modules refer to each other
        if not gc.get_freeze_count():
            gc.freeze()  # later collections need not look at imported modules
        with suppress(AttributeError, OSError, TypeError):  # glibc keeps what was freed; other C libraries lack this
            ctypes.CDLL(None).malloc_trim(0)
        if on_gpu:
            torch.cuda.empty_cache()
