"""Run the benchmarks, print their table, and write it as JSON.

python -m benchmarks [name ...] [--tiny] [--out FILE]

Each benchmark is a module of `laboratory` or `mathematics`, and runs in its own process. If one fails, its error is a
line below the table, the others still run, and the exit status is 1. With names, only their entries in FILE are
replaced.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from datetime import date
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks._rows import COLUMNS, cells

HERE = Path(__file__).parent
MODULES = {path.stem: f"benchmarks.{path.parent.name}.{path.stem}" for path in HERE.glob("*/[!_]*.py")}
NAMES = sorted(MODULES)
OUT = HERE.parent / "build" / "benchmarks.json"
LIMIT_S = 400  # of one benchmark


def run(name: str, size: str, limit: float = LIMIT_S) -> dict[str, Any]:
    """Rows of one benchmark, measured in its own process, or its error; how long it took, and on which machine."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.json"
        command = [sys.executable, "-m", "benchmarks", name, "--child", str(file), *["--tiny"] * (size == "tiny")]
        start = time.perf_counter()
        # its own session, so that the processes that it started end with it
        process = subprocess.Popen(
            command, cwd=HERE.parent, stdout=sys.stderr, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        try:
            _, errors = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            errors = f"took longer than {limit:g} s"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        done = process.returncode == 0 and file.exists()
        entry = json.loads(file.read_text()) if done else {"rows": [], "error": _last_line(errors, process.returncode)}
    return {**entry, "size": size, "seconds": round(time.perf_counter() - start, 1), **machine()}


def _last_line(errors: str, status: int) -> str:
    lines = errors.strip().splitlines()
    return lines[-1] if lines else f"exit status {status}"


def machine() -> dict[str, Any]:
    return {"date": date.today().isoformat(), "python": platform.python_version(), "cores": os.cpu_count()}


def child(name: str, size: str, file: Path) -> None:
    rows = importlib.import_module(MODULES[name]).rows(size)
    file.write_text(json.dumps({"rows": [dataclasses.asdict(row) for row in rows]}))


def table(results: Mapping[str, Mapping[str, Any]]) -> Table:
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("benchmark", *COLUMNS):
        shown.add_column(column, justify="right" if column in COLUMNS[2:6] else "left")
    for name, result in results.items():
        for row in result["rows"]:
            shown.add_row(name, *cells(row))
    return shown


def write(file: Path, results: Mapping[str, Any], names: Iterable[str]) -> None:
    """Write the results; entries of benchmarks that still exist and did not run, or measured nothing here, stay."""
    old = json.loads(file.read_text()) if file.exists() else {}
    others = {name: result for name, result in old.items() if name in set(NAMES) - set(names)}
    for name, result in results.items():
        rows = result["rows"]
        skipped = bool(rows) and all(row["ours_s"] is None and not row["numbers"] for row in rows)
        others[name] = old[name] if skipped and name in old else result
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(dict(sorted(others.items())), indent=1) + "\n")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="name", help=f"default: all of {', '.join(NAMES)}")
    parser.add_argument("--tiny", action="store_true", help="tiny sizes: shows that it works, measures nothing")
    parser.add_argument("--out", type=Path, default=OUT, metavar="FILE", help="JSON file (default: %(default)s)")
    parser.add_argument("--child", type=Path, metavar="FILE", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    size = "tiny" if args.tiny else "full"
    for name in args.names:
        if name not in NAMES:
            parser.error(f"unknown benchmark {name!r}: choose from {', '.join(NAMES)}")
    if args.child:
        child(args.names[0], size, args.child)
        return 0
    results, names = {}, args.names or NAMES
    for name in names:
        results[name] = run(name, size)
        write(args.out, {name: results[name]}, [name])
        print(f"{name}: {results[name].get('error', 'done')}, {results[name]['seconds']} s", file=sys.stderr)
    console = Console(soft_wrap=not sys.stdout.isatty(), width=None if sys.stdout.isatty() else 200)
    console.print(table(results))
    for name, result in results.items():
        if "error" in result:
            print(f"{name} failed: {result['error']}")
    print(f"written to {args.out}")
    return int(any("error" in result for result in results.values()))


if __name__ == "__main__":
    sys.exit(main())
