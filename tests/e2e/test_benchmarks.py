"""Every benchmark runs, here at a tiny size, and one that fails does not stop the others."""

import dataclasses
import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlflow
import pytest
import torch

ROOT = Path(__file__).parents[2]
MODULES = {path.stem: path for path in sorted((ROOT / "benchmarks").glob("*/[!_]*.py"))}
# even tiny, they start several processes or time whole models: three minutes of the suite's twenty
LONG = {"answering", "commands", "decoding", "language_model", "scheduling", "sweep", "tangent_features"}


@pytest.fixture(autouse=True)
def reachable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The folder can be imported, and what later tests rely on is afterwards as before: torch's threads, the store."""
    monkeypatch.syspath_prepend(str(ROOT))
    before, store = torch.get_num_threads(), mlflow.get_tracking_uri()
    yield
    torch.set_num_threads(before)
    assert mlflow.get_tracking_uri() == store


def runner() -> Any:
    return importlib.import_module("benchmarks.__main__")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.heavy if name in LONG else ()) for name in MODULES]
)
def test_a_benchmark_returns_rows_that_can_be_read_alone(name: str) -> None:
    benchmark = importlib.import_module(f"benchmarks.{MODULES[name].parent.name}.{name}")
    assert (benchmark.__doc__ or "").strip()
    rows = benchmark.rows("tiny")
    assert rows
    assert len({row.id for row in rows}) == len(rows)
    for row in json.loads(json.dumps([dataclasses.asdict(row) for row in rows])):
        assert row["what"]
        assert row["ours_s"] is not None or row["numbers"] or row["note"]
        if row["ratio"] is not None:
            assert row["peer"]
            assert row["ratio"] > 0
            low, high = row["spread"] or (row["ratio"], row["ratio"])
            assert low <= row["ratio"] <= high
        elif row["peer"]:
            assert "pip install" in row["note"]


def test_the_ratio_is_peer_by_ours_and_the_spread_its_range() -> None:
    rows = importlib.import_module("benchmarks._rows")
    taken = {"featurelab": [1.0, 2.0, 4.0], "peer": [3.0, 4.0, 20.0]}
    (row, skipped) = rows.compare("work", "some work", taken, missing={"other": "other==1"})
    assert (row.id, row.ours_s, row.peer_s, row.ratio, row.spread) == ("work/peer", 2.0, 4.0, 3.0, (2.0, 5.0))
    assert (skipped.ratio, skipped.spread, skipped.note) == (None, (1.0, 4.0), "other skipped: pip install other==1")
    (alone,) = rows.compare("work", "some work", {"featurelab": [1.0, 3.0]})
    assert (alone.peer, alone.ours_s, alone.spread) == ("", 2.0, (1.0, 3.0))


def test_repeats_alternate_and_the_first_call_is_not_counted() -> None:
    rows, calls = importlib.import_module("benchmarks._rows"), list[str]()
    taken = rows.alternate({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, 3)
    assert calls == ["a", "b", "a", "b", "b", "a", "a", "b"]
    assert [len(seconds) for seconds in taken.values()] == [3, 3]


def test_a_benchmark_that_fails_or_takes_too_long_is_an_error_and_not_an_exception() -> None:
    assert "no_such" in runner().run("no_such", "tiny")["error"]
    assert runner().run("collapse", "tiny", limit=0.1)["error"] == "took longer than 0.1 s"


def test_the_others_are_shown_and_written_and_the_status_says_that_one_failed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = importlib.import_module("benchmarks._rows").Row("work", "some work", 0.25)
    results: dict[str, Any] = {
        "store": {"rows": [], "error": "no space left", "seconds": 1.0},
        "sweep": {"rows": [dataclasses.asdict(row)], "seconds": 2.0},
    }
    monkeypatch.setattr(runner(), "run", lambda name, size: results[name])
    file = tmp_path / "new" / "benchmarks.json"
    assert runner().main(["store", "sweep", "--out", str(file)]) == 1
    shown = capsys.readouterr().out
    assert "store failed: no space left" in shown
    assert "some work" in shown
    assert "0.25 s" in shown
    assert json.loads(file.read_text())["sweep"]["rows"][0]["ours_s"] == 0.25


def test_names_replace_their_own_entries_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "benchmarks.json"
    file.write_text(json.dumps({"store": {"rows": [1]}, "sweep": {"rows": [2]}, "gone": {"rows": [3]}}))
    monkeypatch.setattr(runner(), "run", lambda name, size: {"rows": [], "seconds": 0.0})
    assert runner().main(["sweep", "--out", str(file)]) == 0
    assert json.loads(file.read_text()) == {"store": {"rows": [1]}, "sweep": {"rows": [], "seconds": 0.0}}


def test_an_unknown_name_is_refused_with_those_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        runner().main(["stores"])
    assert "unknown benchmark 'stores': choose from" in capsys.readouterr().err
    assert "benchmarks.stores" not in sys.modules


def test_a_row_from_a_machine_with_a_gpu_stays_where_there_is_none(tmp_path: Path) -> None:
    rows = importlib.import_module("benchmarks._rows")
    measured = {"rows": [dataclasses.asdict(rows.Row("8", "eight at a time", 0.3))], "cores": 16}
    skipped = {"rows": [dataclasses.asdict(rows.Row("skipped", "needs a GPU", None))], "cores": 2}
    file = tmp_path / "rows.json"
    for entry in (skipped, measured, skipped):
        runner().write(file, {"sharing": entry}, ["sharing"])
        written = json.loads(file.read_text())["sharing"]
    assert written == measured
