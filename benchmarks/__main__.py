"""Run the benchmarks and print their tables.

python -m benchmarks [--json] [name ...]

Each benchmark is a module here that prints one JSON document with `--json`: facts of the measurement, and under
`methods` one row for each thing that was measured. It runs in a process of its own, so that none disturbs another.
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
    done = subprocess.run(command, cwd=HERE.parent, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(f"benchmark {name} failed")
    return json.loads(done.stdout)


def table(name: str, found: dict[str, Any]) -> Table:
    facts = ", ".join(f"{key} {number(value)}" for key, value in found.items() if key != "methods")
    shown = Table(title=name, caption=facts, title_justify="left", caption_justify="left")
    for column in found["methods"][0]:
        shown.add_column(column.replace("_", " "), justify="left" if column == "method" else "right")
    for row in found["methods"]:
        shown.add_row(*map(number, row.values()))
    return shown


def number(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of tables")
    parser.add_argument("names", nargs="*", metavar="name", help=f"which ones (default: all): {', '.join(NAMES)}")
    args = parser.parse_args(argv)
    for name in args.names:
        if name not in NAMES:
            parser.error(f"no benchmark is called {name!r}; there is {', '.join(NAMES)}")
    found = {}
    for name in args.names or NAMES:
        found[name] = run(name)
        if not args.json:
            Console().print(table(name, found[name]))
    if args.json:
        print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
