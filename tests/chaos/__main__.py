"""`python -m tests.chaos`: cause faults while sweeps run, and audit what is stored."""

import argparse
import json
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.chaos import audit, processes, report, stores
from tests.chaos.audit import Points, Trial
from tests.chaos.faults import CATALOGUE
from tests.chaos.home import Home, install_lab
from tests.chaos.lanes import Lanes
from tests.chaos.plan import planned
from tests.chaos.sweeper import LEVELS, PAUSE, POINTS, SEEDS


def main() -> int:
    options = _options()
    if options.list:
        print("\n".join(f"{fault.group:8} {name}: {', '.join(fault.stores)}" for name, fault in CATALOGUE.items()))
        return 0
    kinds = []
    for kind in options.stores:
        if advice := stores.missing(kind):
            print(advice, file=sys.stderr)
        else:
            kinds.append(kind)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    root = Path(tempfile.mkdtemp(prefix="chaos-"))
    try:
        return _run(root, kinds, options)
    except KeyboardInterrupt:
        print("interrupted: cleaning up", file=sys.stderr)
        return 130
    finally:
        processes.end_all(root)
        for mounted in sorted(root.glob("*/.featurelab")):
            if mounted.is_mount():
                Home.unmount(mounted)
        if options.keep:
            print(f"the temporary folder is {root}", file=sys.stderr)
        else:
            shutil.rmtree(root, ignore_errors=True)


def _run(root: Path, kinds: Sequence[str], options: argparse.Namespace) -> int:
    began = time.monotonic()
    log: list[str] = []

    def say(text: str) -> None:
        log.append(f"{time.monotonic() - began:6.0f} s  {text}")
        print(log[-1], file=sys.stderr, flush=True)

    episodes = planned(options.seed, options.faults, kinds, options.only)
    episodes = [episode for episode in episodes if not options.episodes or episode.number in options.episodes]
    say(f"{sum(len(episode.faults) for episode in episodes)} faults in {len(episodes)} episodes, seed {options.seed}")
    install_lab(root / "site")
    _make_template(root / "template.db")
    undisturbed = _undisturbed(root) if any(episode.trained for episode in episodes) else {}
    say("the undisturbed sweep has ended")
    lanes = Lanes(root, episodes, undisturbed, say, began + 60 * options.minutes, keep=options.keep)
    outcomes = lanes.run(options.lanes)
    seconds = time.monotonic() - began
    failed = [text for outcome in outcomes for text in outcome.untrue]
    parts = [report.summary(outcomes, seconds, options.seed), report.table(outcomes), *failed]
    if lanes.waiting:
        parts.append(f"no time was left for {sum(len(episode.faults) for episode in lanes.waiting)} faults")
    parts.append(report.skipped(outcomes))
    print("\n\n".join(part for part in parts if part))
    if options.page:
        report.insert(options.page, f"{parts[0]}\n\n{parts[1]}")
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "outcomes.json").write_text(json.dumps([o.as_dict() for o in outcomes], indent=1))
        (options.out / "table.md").write_text(f"{parts[0]}\n\n{parts[1]}\n")
        (options.out / "log").write_text("\n".join(log))
    return int(not all(outcome.clean for outcome in outcomes))


def _undisturbed(root: Path) -> dict[Trial, Points]:
    """Return what the trials that train record without any fault."""
    home = Home(root / "undisturbed", root / "site")
    over = ["kind=trained", f"level={','.join(map(str, LEVELS))}", f"seed={','.join(map(str, SEEDS))}"]
    request = ["sweep", "chaos/curves", f"points={POINTS}", f"pause={PAUSE}", "--name", "undisturbed"]
    result = home.run(*request, *(part for domain in over for part in ("--over", domain)), patience=300)
    if result.code:
        raise SystemExit(f"the undisturbed sweep ended with status {result.code}:\n{result.err}")
    store = stores.SqliteStore(home.folder, home.folder / "none")
    return {run.trial: run.points for run in audit.new_runs(store, ()) if run.trial}


def _make_template(path: Path) -> None:
    from featurelab.tracking.store.connect import connect

    connect(f"sqlite:///{path}", timeout=60)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="decides which faults meet which sweeps, and when")
    parser.add_argument("--faults", type=int, default=200, help="number of faults to cause")
    parser.add_argument("--stores", type=lambda text: text.split(","), default=list(stores.KINDS))
    parser.add_argument("--minutes", type=float, default=30.0, help="no fault is caused later")
    parser.add_argument("--lanes", type=int, default=4, help="sweeps at the same time")
    parser.add_argument("--only", type=lambda text: text.split(","), default=[], help="names of faults, see --list")
    parser.add_argument(
        "--episodes",
        type=lambda text: [int(part) for part in text.split(",")],
        default=[],
        help="only these episodes of the plan, by number",
    )
    parser.add_argument("--list", action="store_true", help="list the faults and exit")
    parser.add_argument("--out", type=Path, help="a folder for the table and all details")
    parser.add_argument("--page", type=Path, help="a page to write the table to, such as docs/reliability.md")
    parser.add_argument("--keep", action="store_true", help="keep the temporary folder")
    options = parser.parse_args()
    for name in options.only:
        if name not in CATALOGUE:
            parser.error(f"unknown fault {name!r}: --list shows all")
    for kind in options.stores:
        if kind not in stores.KINDS:
            parser.error(f"unknown store {kind!r}: choose from {', '.join(stores.KINDS)}")
    return options


if __name__ == "__main__":
    sys.exit(main())
