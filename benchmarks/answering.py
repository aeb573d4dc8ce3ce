"""How long a command that only tells takes to answer: each a process of its own, the fastest of some.

Beside them stands Python itself, and what MLflow takes to tell its version.

    python -m benchmarks.answering [--json] [--times 5]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

TIMES = 5
BIN = Path(sys.executable).parent
COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "mlflow --version": [str(BIN / "mlflow"), "--version"],
    "featurelab --help": [str(BIN / "featurelab"), "--help"],
    "featurelab list": [str(BIN / "featurelab"), "list"],
    "featurelab list --json": [str(BIN / "featurelab"), "list", "--json"],
    "featurelab show": [str(BIN / "featurelab"), "show", "neural_feature_ansatz/init_scale"],
}


def seconds(command: list[str], times: int) -> float:
    """The seconds that a command takes, the fastest of some."""
    fastest = float("inf")
    for _ in range(times):
        with tempfile.TemporaryDirectory() as home:
            began = time.perf_counter()
            subprocess.run(command, cwd=home, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
            fastest = min(fastest, time.perf_counter() - began)
    return fastest


def measure(times: int = TIMES) -> dict[str, Any]:
    """The seconds of each command."""
    methods = [{"method": name, "seconds": seconds(command, times)} for name, command in COMMANDS.items()]
    return {"times": times, "methods": methods}


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of a table")
    parser.add_argument("--times", type=int, default=TIMES, help="how often each is asked")
    args = parser.parse_args(argv)
    found = measure(args.times)
    if args.json:
        print(json.dumps(found))
        return
    for row in found["methods"]:
        print(f"{row['method']:24}{row['seconds']:8.2f} s")


if __name__ == "__main__":
    main()
