"""A record that was changed is never called identical to its repetition; one that was not, always."""

import json
import math
from dataclasses import replace

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlflow.entities import Metric, Param, Run, RunData, RunInfo, RunTag

from featurelab.pipelines.engine.verdict.repetition import Recorded, hold
from featurelab.tracking.provenance import config_hash

CONFIG = {"seed": 0, "lr": 0.1, "widths": [4, 2]}
TAGS = {"status": "finished", "config": json.dumps(CONFIG), "config_hash": config_hash(CONFIG)}
PARAMS = {"lr": "0.1", "widths": "[4, 2]"}
COLUMNS = ["metric", "step", "value", "timestamp"]


def record(rows, tags=TAGS, params=PARAMS, status="FINISHED", last=None, document=CONFIG, run_id="old"):
    """A trial as the store gives it; the last values are those of the rows unless given."""
    points = pd.DataFrame(rows, columns=COLUMNS)
    if last is None:
        last = {metric: value for metric, _, value, _ in sorted(rows, key=lambda row: (row[1], row[3]))}
    metrics = [Metric(name, value, 0, 0) for name, value in last.items()]
    data = RunData(metrics, [Param(*item) for item in params.items()], [RunTag(*item) for item in tags.items()])
    return Recorded(Run(RunInfo(run_id, "1", "me", status, 0, 1, "active"), data), points, document)


def curve(steps, begin=0, metrics=("a", "b")):
    return [(name, step, step + 0.5, begin + step) for step in range(steps) for name in metrics]


VALUES = st.floats(allow_nan=True, allow_infinity=True)
KEYS = st.tuples(st.sampled_from(["a", "b", "final/a"]), st.integers(0, 6))
ROWS = st.dictionaries(KEYS, VALUES, min_size=1, max_size=12).map(
    lambda found: [(*key, value, number) for number, (key, value) in enumerate(found.items())]
)
MEASURED = ROWS.filter(lambda rows: any(row[0] != "final/a" for row in rows))


@settings(max_examples=50)
@given(MEASURED, st.randoms(), st.integers(0, 10**9))
def test_a_repetition_with_the_same_points_is_identical_whenever_and_in_whatever_order(rows, random, later):
    shifted = [(metric, step, value, time + later) for metric, step, value, time in rows]
    random.shuffle(shifted)
    said = hold(record(rows), record(shifted, run_id="new"))
    measured = sum(row[0] != "final/a" for row in rows)
    assert (said.identical, said.differences, said.max_abs_diff) == (True, [], 0.0)
    assert said.points_compared == said.points_recorded == said.points_repeated == measured


@settings(max_examples=50)
@given(MEASURED, st.data())
def test_no_single_change_of_a_point_goes_unnoticed(rows, data):
    at = data.draw(st.sampled_from([n for n, row in enumerate(rows) if row[0] != "final/a"]))
    metric, step, value, time = rows[at]
    kind = data.draw(st.sampled_from(["value", "delete", "double", "move", "rename"]))
    changed = {
        "value": lambda: [(metric, step, data.draw(VALUES.filter(lambda new: _other(new, value))), time)],
        "delete": list,
        "double": lambda: [rows[at], (metric, step, value, time + 5)],
        "move": lambda: [(metric, step + 100, value, time)],
        "rename": lambda: [("other", step, value, time)],
    }[kind]()
    tampered = [*rows[:at], *changed, *rows[at + 1 :]]
    said = hold(record(tampered), record(rows, run_id="new"), stoppable=data.draw(st.booleans()))
    assert not said.identical
    assert said.differences


def _other(new, old):
    """Whether two values have different bits, as far as a store keeps them."""
    return not (new == old and math.copysign(1, new) == math.copysign(1, old)) and not (new != new and old != old)


TAMPERED = {
    "the last value": ({"last": {"a": -5.0, "b": 39.5}}, "the last value of a is -5.0, its last point 39.5"),
    "a last value removed": ({"last": {"a": 39.5}}, "b has points and no last value"),
    "a last value added": ({"last": {"a": 39.5, "b": 39.5, "c": 1.0}}, "the last value of c has no point"),
    "a param": ({"params": PARAMS | {"lr": "99"}}, "param lr is '99', the config's is '0.1'"),
    "a param removed": ({"params": {"lr": "0.1"}}, "param 'widths' is missing"),
    "a param added": ({"params": PARAMS | {"more": "1"}}, "param 'more' is not a setting of the config"),
    "the hash": ({"tags": TAGS | {"config_hash": "0" * 16}}, f"config_hash is '{'0' * 16}', that of the config is "),
    "the config": ({"tags": TAGS | {"config": json.dumps(CONFIG | {"seed": 5})}}, "setting seed was 5, is now 0"),
    "config.json": ({"document": CONFIG | {"seed": 5}}, "config.json is not the config of the tags"),
    "the status": ({"tags": TAGS | {"status": "killed"}}, "status is 'killed', MLflow's is FINISHED"),
    "MLflow's status": ({"status": "KILLED"}, "status is 'finished', MLflow's is KILLED"),
}


@pytest.mark.parametrize("what", TAMPERED)
@pytest.mark.parametrize("stoppable", [False, True])
def test_what_else_was_changed_in_a_record_is_named(what, stoppable):
    changes, says = TAMPERED[what]
    said = hold(record(curve(40), **changes), record(curve(40), run_id="new"), stoppable=stoppable)
    assert not said.identical
    assert any(says in difference for difference in said.differences), said.differences
    assert (said.points_compared, said.max_abs_diff) == (80, 0.0)


@pytest.mark.parametrize(("status", "ended"), [("killed", "KILLED"), ("killed", "FINISHED"), ("finished", "FINISHED")])
def test_half_of_the_points_are_never_identical_to_all_of_them(status, ended):
    half = record(curve(20), tags=TAGS | {"status": status}, status=ended)
    said = hold(half, record(curve(40), run_id="new"), stoppable=True)
    assert not said.identical
    assert said.differences[0] == "40 of 80 points were recorded"
    assert said.points == "40 of 80 points"


STOPPED = TAGS | {"status": "stopped"}


def test_a_trial_that_a_scheduler_stopped_is_identical_as_far_as_it_goes_and_says_how_far():
    said = hold(record(curve(20), tags=STOPPED), record(curve(40, begin=1000), run_id="new"), stoppable=True)
    assert (said.identical, said.differences, said.points) == (True, [], "40 of 80 points")


def test_a_trial_that_nothing_could_have_stopped_is_not():
    said = hold(record(curve(20), tags=STOPPED), record(curve(40), run_id="new"))
    assert "status was stopped, is now finished" in said.differences


@pytest.mark.parametrize("gone", [[5], [0, 1, 2], [18]])
def test_a_gap_in_what_a_scheduler_stopped_is_seen(gone):
    rows = [row for row in curve(20) if row[1] not in gone]
    said = hold(record(rows, tags=STOPPED), record(curve(40), run_id="new"), stoppable=True)
    assert not said.identical
    assert f"a at step {gone[0]} is new" in said.differences


def test_a_metric_that_a_trial_records_twice_at_a_step_is_compared_as_often():
    rows = [("a", 3, 2.0, 1), ("a", 3, 1.0, 2)]
    assert hold(record(rows), record([("a", 3, 2.0, 7), ("a", 3, 1.0, 7)], run_id="new", last={"a": 2.0})).identical
    said = hold(record(rows), record(rows[:1], run_id="new"))
    assert said.differences == ["a at step 3: 1.0 became 2.0", "a at step 3 was recorded twice"]


def test_a_record_without_points_is_identical_to_nothing():
    said = hold(record([]), record([], run_id="new"))
    assert (said.identical, said.differences) == (False, ["no metric was recorded by both"])


def test_a_setting_that_the_experiment_has_got_since_is_no_difference():
    wider = CONFIG | {"added": 1}
    tags = TAGS | {"config": json.dumps(wider), "config_hash": config_hash(wider)}
    assert hold(record(curve(3)), record(curve(3), tags=tags, run_id="new")).identical


def test_an_artifact_that_cannot_be_read_is_no_difference():
    unread = replace(record(curve(3)), document=None)
    assert hold(unread, record(curve(3), run_id="new")).identical
