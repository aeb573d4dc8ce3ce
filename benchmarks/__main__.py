"""Run the benchmarks and print their tables.

python -m benchmarks [--json] [name ...]

Each benchmark is a module of this package. With `--json` it prints one JSON document: facts about the measurement, and
under `methods` one row for each method. Each runs in its own process, so that they do not disturb one another.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent
NAMES = sorted(path.stem for path in HERE.glob("*.py") if not path.stem.startswith("_"))


def run(name: str) -> dict[str, Any]:
    command = [sys.executable, "-m", f"benchmarks.{name}", "--json"]
    process = subprocess.run(command, cwd=HERE.parent, stdout=subprocess.PIPE, text=True)
    if process.returncode:
        raise SystemExit(f"benchmark {name} failed with exit status {process.returncode}")
    return json.loads(process.stdout)


def table(name: str, results: dict[str, Any]) -> Table:
    facts = ", ".join(f"{key} {number(value)}" for key, value in results.items() if key != "methods")
    rich_table = Table(title=name, caption=facts, title_justify="left", caption_justify="left")
    for column in results["methods"][0]:
        rich_table.add_column(column.replace("_", " "), justify="left" if column == "method" else "right")
    for row in results["methods"]:
        rich_table.add_row(*map(number, row.values()))
    return rich_table


def number(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of tables")
    parser.add_argument(
        "names", nargs="*", metavar="name", help=f"benchmarks to run (default: all): {', '.join(NAMES)}"
    )
    args = parser.parse_args(argv)
    for name in args.names:
        if name not in NAMES:
            parser.error(f"unknown benchmark {name!r}: choose from {', '.join(NAMES)}")
    results = {}
    for name in args.names or NAMES:
        results[name] = run(name)
        if not args.json:
            Console().print(table(name, results[name]))
    if args.json:
        print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
