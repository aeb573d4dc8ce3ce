"""How long a command that only tells takes to answer, next to Python itself and to `mlflow --version`."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from benchmarks._rows import Row, Size, alternate, compare

BIN = Path(sys.executable).parent
PEERS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "mlflow --version": [str(BIN / "mlflow"), "--version"],
}
OURS = {
    "help": ["--help"],
    "list": ["list"],
    "list-json": ["list", "--json"],
    "show": ["show", "neural_feature_ansatz/init_scale"],
}


def answer(command: list[str]) -> None:
    """Run a command in an empty folder."""
    with tempfile.TemporaryDirectory() as home:
        subprocess.run(command, cwd=home, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)


def rows(size: Size) -> list[Row]:
    names = list(OURS)[: 1 if size == "tiny" else None]
    commands = PEERS | {name: [str(BIN / "featurelab"), *OURS[name]] for name in names}
    seconds = alternate(
        {name: partial(answer, command) for name, command in commands.items()}, 1 if size == "tiny" else 5
    )
    peers = {name: seconds[name] for name in PEERS}
    return [
        row
        for name in names
        for row in compare(
            name, f"featurelab {' '.join(OURS[name])}, as a new process", {"featurelab": seconds[name], **peers}
        )
    ]
