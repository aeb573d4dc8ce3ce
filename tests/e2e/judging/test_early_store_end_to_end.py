"""A store that an early version wrote (commit 71bba0d) can be listed, judged, compared, repeated and resumed."""

import json
import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from commandline import CommandLine, ended

from featurelab.tracking.values import DERIVED

WRITTEN_AT = "/tmp/fx/home"
FIGURE = "deep_neural_collapse/krr_value_of_layers"
SCALE = "neural_feature_ansatz/init_scale"
# of FIGURE a sweep and one of its trials; of SCALE a run on its own, and a killed sweep with checkpoints of two trials
SWEEP, TRIAL = "30574f4e48b94ba3bc7cd15f4e7f94c7", "0a38d522847e47f984fb2cc45af32306"
ALONE, NIGHT = "21ad3e3ceb934a36ac80356ea85771f0", "f4a56633db7f45f4b9afccc6d79a47cd"
CUT = ["8c555e0975f64f37bdc156781f3be5ef", "8e734be7d4534d328cbcce3c7bd13784"]


@pytest.fixture(scope="module")
def early(tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str]) -> CommandLine:
    """A copy of the store, whose artifacts are where it lies now."""
    home = tmp_path_factory.mktemp("early")
    shutil.unpack_archive(Path(__file__).with_name("stores") / "71bba0d.tar.xz", home)
    with sqlite3.connect(home / "mlflow.db") as database:
        for table, column in (("runs", "artifact_uri"), ("experiments", "artifact_location")):
            database.execute(f"UPDATE {table} SET {column} = replace({column}, ?, ?)", (WRITTEN_AT, str(home)))
    database.close()
    return CommandLine(home, environment)


@pytest.fixture(scope="module")
def said_then(early: CommandLine) -> Any:
    """What `reproduce FIGURE --json` printed when the store was written."""
    (figure,) = json.loads((early.home / "reproduced.json").read_text())["experiments"]
    return figure


def flat(values: Any, at: str = "") -> dict[str, float]:
    """The numbers in dictionaries and lists, by their places."""
    if isinstance(values, list):
        values = dict(enumerate(values))
    if not isinstance(values, dict):
        return {at: values}
    return {place: number for key, value in values.items() for place, number in flat(value, f"{at}/{key}").items()}


def test_its_figure_is_judged_and_drawn_with_the_same_numbers(early: CommandLine, said_then: Any) -> None:
    (figure,) = early("judge", SWEEP, "--json").document["experiments"]
    claims, then = figure.pop("claims"), said_then.pop("claims")
    assert figure == said_then | {"seconds": figure["seconds"]}
    for claim, before in zip(claims, then, strict=True):
        assert claim["status"] in (before.pop("status"), "undecided"), "which was not known then"
        same = ("id", "origin", "expected", "paper", "seeds")
        assert [claim[key] for key in same] == [before[key] for key in same]
        for key in ("measured", "ci"):  # another NumPy rounds otherwise
            assert flat(claim[key]) == pytest.approx(flat(before[key]), rel=1e-9)
    early("report", "--out", "report")
    assert "Thm. 4.4, in Deep RFM" in (early.home / "report" / "index.html").read_text()


def test_its_runs_are_compared(early: CommandLine) -> None:
    said = early("compare", TRIAL, ALONE, "--json").document
    assert said["metrics"]
    assert "charts" not in said


def measured(home: CommandLine, run_id: str) -> dict[str, float]:
    """The last values of a run, without those that are derived from others: earlier versions derived more."""
    metrics = home.client.get_run(run_id).data.metrics
    return {name: value for name, value in metrics.items() if not name.startswith(DERIVED)}


@pytest.mark.parametrize("run_id", [TRIAL, ALONE])
def test_its_runs_are_repeated(early: CommandLine, run_id: str) -> None:
    """To rounding: the code of that time added in another order, and perhaps on another processor. Both is said."""
    home = early.elsewhere(early.home)
    before = measured(home, run_id)
    done = ended(home.start("rerun", run_id, "--json"), timeout=300)
    said = done.document
    assert said["identical"] or any(change.startswith("source: ") for change in said["environment_changes"]), said
    assert done.code == (0 if said["identical"] else 1)
    assert measured(home, said["new_run_id"]) == pytest.approx(before, rel=1e-3, abs=1e-6)


def test_its_interrupted_sweep_is_resumed_in_the_same_runs_from_their_checkpoints(
    early: CommandLine, lab: CommandLine
) -> None:
    said = replace(early, environment=lab.environment)("sweep", SCALE, "--resume", "night", "--json").document
    assert (said["sweep_run_id"], [trial["status"] for trial in said["trials"]]) == (NIGHT, ["finished"] * 3)
    assert [trial["run_id"] for trial in said["trials"][:2]] == CUT
    for run_id in CUT:
        tags = early.client.get_run(run_id).data.tags
        assert tags["resumed"].startswith("from step ")
        assert [step for step, _ in early.history(run_id, "loss/test")] == list(range(0, 6001, 300))
