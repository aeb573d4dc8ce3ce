"""`rerun` names a change of the package that declares a figure, and tells a changed record from its repetition."""

import os
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from commandline import CommandLine, Said, import_path

NAME = "stranger/curves"
POINTS = 24  # of two metrics at 12 steps


@pytest.fixture(scope="module")
def here(lab: CommandLine) -> CommandLine:
    return lab.desk("repeated")


def recorded(here: CommandLine) -> str:
    run_id: str = here("run", NAME, "--json").document["run_id"]
    return run_id


@pytest.fixture(scope="module")
def run_id(here: CommandLine) -> str:
    return recorded(here)


def edited(here: CommandLine, tmp_path: Path, old: str, new: str) -> CommandLine:
    """The command where somebody has edited the stranger's package."""
    site = tmp_path / "site"
    packages = here.environment["PYTHONPATH"].split(os.pathsep)[-1]
    shutil.copytree(packages, site, ignore=shutil.ignore_patterns("__pycache__"))
    source = (site / "stranger_lab.py").read_text()
    assert old in source
    (site / "stranger_lab.py").write_text(source.replace(old, new))
    return here.elsewhere(here.home, PYTHONPATH=import_path(site))


def test_a_change_of_the_package_that_declares_it_is_named(here: CommandLine, run_id: str, tmp_path: Path) -> None:
    changed = edited(here, tmp_path, "config.level + 1 / step", "config.level + 2 / step")
    said = changed("rerun", run_id, "--json", code=1).document
    assert not said["identical"]
    (change,) = said["environment_changes"]
    assert change.startswith("source of stranger_lab: ")
    assert change.endswith(" (stranger_lab.py)")


def test_a_change_that_changes_no_number_is_named_beside_identical(
    here: CommandLine, run_id: str, tmp_path: Path
) -> None:
    changed = edited(here, tmp_path, '"losses that are known beforehand"', '"losses that are known"')
    said = changed("rerun", run_id)
    assert said.err.startswith(f"identical: {POINTS} points of 2 metrics, largest difference 0\n")
    assert "environment: source of stranger_lab: " in said.err


def test_a_strangers_run_names_their_package_and_not_our_commit(here: CommandLine, run_id: str) -> None:
    run = here.client.get_run(run_id)
    assert run.data.tags["mlflow.source.name"] == f"featurelab run {NAME}"
    assert "mlflow.source.git.commit" not in run.data.tags
    assert here("rerun", run_id, "--json").document["environment_changes"] == []


TAMPERED = {
    "a last value": (
        ["UPDATE latest_metrics SET value = -5 WHERE run_uuid = :run AND key = 'loss/val'"],
        "the last value of loss/val is -5.0",
    ),
    "a point doubled": (
        [
            "INSERT INTO metrics (key, value, timestamp, run_uuid, step, is_nan) "
            "SELECT key, value, timestamp + 5, run_uuid, step, is_nan FROM metrics "
            "WHERE run_uuid = :run AND step = 7 AND key = 'loss/val'"
        ],
        "loss/val at step 7 was recorded twice",
    ),
    "half of the points deleted": (
        [
            "DELETE FROM metrics WHERE run_uuid = :run AND step > 6",
            "UPDATE tags SET value = 'killed' WHERE run_uuid = :run AND key = 'status'",
        ],
        "12 of 24 points were recorded",
    ),
    "a param": (["UPDATE params SET value = '99' WHERE run_uuid = :run AND key = 'level'"], "param level is '99'"),
    "the hash of the config": (
        ["UPDATE tags SET value = '0000000000000000' WHERE run_uuid = :run AND key = 'config_hash'"],
        "config_hash is '0000000000000000'",
    ),
}


@pytest.mark.parametrize("what", TAMPERED)
def test_a_changed_record_is_not_called_identical(here: CommandLine, what: str) -> None:
    run_id: Any = here("run", NAME, "level=1.0", "--json").document["run_id"]
    statements, says = TAMPERED[what]
    with sqlite3.connect(here.home / "mlflow.db", timeout=60) as database:
        changed = sum(database.execute(statement, {"run": run_id}).rowcount for statement in statements)
    database.close()
    assert changed > 0
    said: Said = here("rerun", run_id, code=1)
    assert said.err.startswith("NOT identical: ")
    assert says in said.err
