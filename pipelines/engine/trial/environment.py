"""What the record of a run says of its environment: packages, source, input files, and the kernels of the processor."""

import functools
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from threadpoolctl import threadpool_info

from featurelab.modules import data, language
from featurelab.pipelines.engine.experiment.catalogue.strangers import entry_of
from featurelab.pipelines.engine.experiment.config import Config
from featurelab.pipelines.engine.experiment.experiment import Experiment
from featurelab.tracking import code
from featurelab.tracking.errors import StoreError
from featurelab.tracking.lines import line
from featurelab.tracking.outbox.record import Recorder
from featurelab.tracking.pages import source
from featurelab.tracking.provenance import changes, environment
from featurelab.tracking.store.connect import Store

OURS = "featurelab"
DIGITS = 32  # that are kept of a digest
# with these, a user or a container makes the libraries choose other kernels than the processor alone would
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


def record_environment(store: Store, recorder: Recorder, experiment: Experiment, config: Config, attempt: int) -> None:
    """Record the environment of a trial; of a resumed one only if it changed, together with the changes."""
    packages = code_of(experiment)
    now = environment(
        threads=config.threads, dispatch=dispatch(), read=input_digests(experiment, config), code=packages
    )
    try:
        first = store.read_json(recorder.run_id, "environment.json") if attempt > 1 else None
    except StoreError:  # it may be on a machine that is gone
        first = None
    if not isinstance(first, dict):
        recorder.json("environment", now)
        package = declaring_package(experiment)
        revision = (now["git"] if package == OURS else packages.get(package)) or {}
        recorder.tags(source(f"featurelab run {experiment.name}", revision.get("commit", "")))
    elif changed := changes(first, now):
        recorder.json(f"environment_{attempt}", now)
        recorder.tags({"environment_changes": line("; ".join(changed))})


def dispatch() -> dict[str, str]:
    """The instruction set of torch, the kernels of each loaded BLAS, and the variables that override them.

    Float sums differ in their last bits from kernel to kernel.
    """
    overrides = {name: line(os.environ[name], 100) for name in VARIABLES if name in os.environ}
    return _kernels(len(sys.modules)) | overrides


@functools.lru_cache(1)
def _kernels(modules: int) -> dict[str, str]:
    """The kernels that are loaded; looked up again when the number of imported modules has changed."""
    kernels = {"torch kernels": torch.backends.cpu.get_cpu_capability()}
    # of several BLAS of one kind NumPy's comes last and counts: which others are loaded depends on what ran before
    for library in sorted(threadpool_info(), key=_of_numpy):
        if library["user_api"] == "blas":
            architecture = library.get("architecture") or ""
            version = library.get("version") or ""
            kernels[f"{library['internal_api']} kernels"] = f"{version} {architecture}".strip()
    return kernels


def _of_numpy(library: Mapping[str, Any]) -> bool:
    return "numpy" in Path(library["filepath"]).parent.name


def input_digests(experiment: Experiment, config: Config) -> dict[str, str]:
    """SHA-256, cut to 32 digits, of files that a trial reads and no seed determines: models, tokenizers, texts.

    Datasets of pictures are left out, since a run names the digest of those that it has read. Raises ModelMissing or
    DatasetMissing.
    """
    if experiment.estimate is None:
        return {}
    cost, digests = experiment.estimate(config), {}
    for name in cost.models:
        for part, digest in language.model_digests(name).items():
            digests[f"{part} of {name}"] = digest[:DIGITS]
    for name in cost.data:
        if data.dataset_source(name).texts:
            for split, facts in data.check_dataset(name)["splits"].items():
                digests[f"{name}, {split}"] = facts["digest"][:DIGITS]
    return digests


def declaring_package(experiment: Experiment) -> str:
    """The package or module that declares an experiment."""
    entry = entry_of(experiment)
    return _top(entry.module if entry else _module(experiment.run_trial))


def code_of(experiment: Experiment) -> dict[str, dict[str, Any]]:
    """What `featurelab.tracking.code` says of each package whose code a trial runs, with its distribution.

    These are featurelab itself, and the packages of the entry point, of the trial and of the config.
    """
    modules = [_module(experiment.run_trial), type(experiment.laptop).__module__, declaring_package(experiment)]
    names = [name for name in dict.fromkeys([OURS, *map(_top, modules)]) if name not in sys.stdlib_module_names]
    packages = {name: dict(facts) for name in names if (facts := code.package(name))}
    entry = entry_of(experiment)
    if entry and entry.dist and _top(entry.module) in packages:
        packages[_top(entry.module)]["distribution"] = f"{entry.dist.name} {entry.dist.version}"
    return packages


def _module(function: Any) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    return str(getattr(function, "__module__", None) or type(function).__module__)


def _top(module: str) -> str:
    return module.partition(".")[0]
