"""Is this machine fit to run experiments? One line a check."""

import importlib.util
import os
import platform
import shutil
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from featurelab import namesake
from featurelab.tracking.provenance import environment
from featurelab.tracking.store.addresses import shown
from featurelab.tracking.store.connect import StoreError, connect

LEAST_FREE = 2 * 2**30


def examine(outbox: Path) -> list[dict[str, Any]]:
    """Every check as `{"name", "ok", "detail"}`; nothing is changed but an empty store being made ready."""
    return [
        _check("python", sys.version_info >= (3, 11), platform.python_version()),
        _packages(),
        _pins(),
        _name(),
        _store(),
        _disk(),
        _compute(),
        _public(),
        _language(),
        _unsent(outbox),
    ]


def _check(name: str, ok: bool, detail: str) -> dict[str, Any]:
    return {"name": name, "ok": ok, "detail": detail}


def _packages() -> dict[str, Any]:
    names = ["torch", "pytorch-lightning", "ray", "mlflow"]
    return _check("packages", True, ", ".join(f"{name} {version(name)}" for name in names))


def _pins() -> dict[str, Any]:
    """Are the installed versions the tested ones?"""
    pins = Path(__file__).resolve().parents[3] / "constraints.txt"
    if not pins.exists():
        return _check("tested versions", True, "no constraints.txt beside the package: not checked")
    installed = dict(line.split("==") for line in environment()["packages"])
    other = []
    for line in pins.read_text().splitlines():
        name, found, pinned = line.partition("==")
        have = installed.get(name.strip().lower().replace("_", "-"))
        if found and have is not None and have.split("+")[0] != pinned.strip():
            other.append(f"{name} {have} instead of {pinned.strip()}")
    return _check("tested versions", not other, "; ".join(other[:5]) or "all as in constraints.txt")


def _name() -> dict[str, Any]:
    where = namesake.found()
    return _check("name", not where, namesake.message(where) if where else "no other project's featurelab is installed")


def _store() -> dict[str, Any]:
    try:
        return _check("store", True, shown(connect().uri))
    except StoreError as error:
        return _check("store", False, str(error))


def _disk() -> dict[str, Any]:
    free = shutil.disk_usage(Path.cwd()).free
    return _check("disk", free > LEAST_FREE, f"{free / 2**30:.1f} GiB free here")


def _compute() -> dict[str, Any]:
    import torch

    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return _check("compute", True, f"{os.cpu_count()} CPUs, " + (", ".join(gpus) or "no GPU"))


def _public() -> dict[str, Any]:
    found = importlib.util.find_spec("datasets") is not None
    needed = "not installed: paper presets on real data need pip install 'feature-learning-lab[public]'"
    return _check("public data", True, "installed" if found else needed)


def _language() -> dict[str, Any]:
    found = importlib.util.find_spec("transformers") is not None
    needed = "not installed: published language models need pip install 'feature-learning-lab[lm]'"
    return _check("language models", True, "installed" if found else needed)


def _unsent(outbox: Path) -> dict[str, Any]:
    left = len(list(outbox.glob("*.jsonl"))) if outbox.is_dir() else 0
    return _check("outbox", not left, f"{left} runs left unsent: featurelab sync" if left else "empty")
