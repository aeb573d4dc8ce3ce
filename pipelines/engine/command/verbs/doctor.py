"""`featurelab doctor`: is this machine fit to run experiments? One line for each check."""

import importlib.util
import os
import platform
import shutil
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import typer

from featurelab import namesake
from featurelab.pipelines.engine.command.arguments import Json
from featurelab.pipelines.engine.command.settings import SETTINGS, Setting
from featurelab.pipelines.engine.command.shared import outbox_folder
from featurelab.pipelines.engine.errors import tell
from featurelab.tracking.errors import StoreError
from featurelab.tracking.lines import line, masked

LEAST_FREE = 2 * 2**30  # bytes of disk


def doctor(as_json: Json = False) -> None:
    """Check that this machine is fit to run experiments."""
    checks = examine(outbox_folder(writes=False))
    if as_json:
        from featurelab.pipelines.engine.command import terminal

        terminal.emit(checks)
    else:
        for check in checks:
            tell(f"{'ok  ' if check['ok'] else 'BAD '} {check['name']}: {check['detail']}")
    raise typer.Exit(0 if all(check["ok"] for check in checks) else 1)


def examine(outbox: Path) -> list[dict[str, Any]]:
    """Return every check as `{"name", "ok", "detail"}`; the only change is that an empty store is made ready."""
    return [
        _check("python", sys.version_info >= (3, 11), platform.python_version()),
        _packages(),
        _pins(),
        _name(),
        _store(),
        _disk(),
        _compute(),
        _extra("public data", "datasets", "desktop and paper presets on real data", "public"),
        _extra("language models", "transformers", "published language models", "lm"),
        _extra("search that learns", "optuna", "sweeps with --search optuna", "search"),
        _unsent(outbox),
        *map(_setting, SETTINGS),
    ]


def _check(name: str, ok: bool, detail: str) -> dict[str, Any]:
    return {"name": name, "ok": ok, "detail": detail}


def _packages() -> dict[str, Any]:
    names = ["torch", "pytorch-lightning", "ray", "mlflow"]
    return _check("packages", True, ", ".join(f"{name} {version(name)}" for name in names))


def _pins() -> dict[str, Any]:
    """Check that the installed versions are those that were tested."""
    from featurelab.tracking.provenance import environment

    pins = Path(__file__).resolve().parents[4] / "constraints.txt"
    if not pins.exists():
        return _check("tested versions", True, "not checked: there is no constraints.txt beside the package")
    installed = dict(pinned.split("==") for pinned in environment()["packages"])
    other = []
    for entry in pins.read_text().splitlines():
        name, pin, pinned = entry.partition("==")
        here = installed.get(name.strip().lower().replace("_", "-"))
        if pin and here is not None and here.split("+")[0] != pinned.strip():
            other.append(f"{name} {here} instead of {pinned.strip()}")
    return _check("tested versions", not other, "; ".join(other[:5]) or "all as in constraints.txt")


def _name() -> dict[str, Any]:
    where = namesake.other_project()
    return _check("name", not where, namesake.message(where) if where else "no other project's featurelab is installed")


def _store() -> dict[str, Any]:
    from featurelab.tracking.store.addresses import shown
    from featurelab.tracking.store.connect import connect

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


def _extra(name: str, package: str, needed_by: str, extra: str) -> dict[str, Any]:
    """Say whether an optional package is installed, and otherwise who needs it; lacking it is not a fault."""
    missing = f"not installed: {needed_by} need pip install 'feature-learning-lab[{extra}]'"
    return _check(name, True, "installed" if importlib.util.find_spec(package) else missing)


def _setting(setting: Setting) -> dict[str, Any]:
    given = "not set" if setting.value is None else line(masked(setting.value), 80)
    return _check(setting.name, True, f"{given} (default: {setting.default}): {setting.meaning}")


def _unsent(outbox: Path) -> dict[str, Any]:
    unsent = len(list(outbox.glob("*.jsonl"))) if outbox.is_dir() else 0
    return _check("outbox", not unsent, f"{unsent} runs left unsent: featurelab sync" if unsent else "empty")
