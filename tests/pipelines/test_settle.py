"""Trials that could not say how they ended: each gets a final state, and the reason that is known."""

from dataclasses import replace

import pytest

from pipelines import registry
from pipelines.cluster import NO_MEMORY
from pipelines.conduct import Opened, Plan, conduct, settle
from pipelines.sweep import open_sweep
from pipelines.trial import start
from tracking.connect import attach, connect
from tracking.record import Recorder

DIED = (
    "Failure # 1 (occurred at 2026-11-21_15-52-50)\nThe actor died unexpectedly before finishing this task.\n"
    "\tclass_name: ImplicitFunc\nThe actor is dead because its worker process has died. Worker exit type: ...\n"
)
REFUSED = (
    "Traceback (most recent call last):\n  ...\n"
    "tracking.errors.StoreError: the store at X cannot be written: the disk is full\n\n"
)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return connect(f"sqlite:///{tmp_path_factory.mktemp('store') / 'mlflow.db'}", timeout=60)


@pytest.fixture
def sweep(store):
    """A plan of three trials of which two opened a run: (plan, id of the sweep, ids of the runs)."""
    experiment = registry.find("neural_feature_ansatz/init_scale")
    plan = Plan(experiment, experiment.configs("laptop")[:3], experiment.varied("laptop"), "laptop", name="cut")
    sweep_run_id = open_sweep(plan, "cut", store)
    runs = []
    for index, config in enumerate(plan.configs[:2]):
        tags = {"sweep": "cut", "sweep_run_id": sweep_run_id, "trial": str(index), "status": "running"}
        runs.append(start(experiment, config, store, scale="laptop", name="", axes=plan.axes, tags=tags))
    return plan, sweep_run_id, runs


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ("", "its worker process died"),
        (DIED, "its worker process died"),
        (f"Failure # 1 (occurred at 2026-11-21_15-52-50)\n{NO_MEMORY}\n", NO_MEMORY),
        (REFUSED, "the store at X cannot be written: the disk is full"),
        ("Traceback\n  ...\nKeyError: 'width'\n", "KeyError: 'width'"),
    ],
)
def test_a_trial_ends_with_the_reason_that_ray_gives(store, sweep, tmp_path, error, reason):
    plan, sweep_run_id, runs = sweep
    trials = settle(plan, sweep_run_id, store, tmp_path, {0: error, 2: error}, killed=False)
    assert [(t.run_id, t.status, t.reason) for t in trials] == [
        (runs[0], "failed", reason),
        (runs[1], "failed", "its worker process died"),
        ("", "failed", reason),
    ]
    assert [t.cut_short for t in trials[:2]] == [True, True]
    assert [store.get_run(run_id).info.status for run_id in runs] == ["FAILED", "FAILED"]


def test_a_run_whose_points_wait_for_a_store_that_has_moved_says_so(store, sweep, tmp_path):
    plan, sweep_run_id, runs = sweep
    recorder = Recorder(replace(attach("http://127.0.0.1:9"), patience=0.0), runs[0], outbox=tmp_path / "outbox")
    recorder.log({"loss/train": 0.5}, 0)
    assert not recorder.close(tags={"status": "finished"}, timeout=0.1)
    trials = settle(plan, sweep_run_id, store, tmp_path / "outbox", {}, killed=False)
    assert trials[0].reason.startswith("what it recorded could not be sent: ")
    assert trials[0].reason.endswith("connection refused")
    assert (trials[0].cut_short, trials[1].reason) == (True, "its worker process died")
    assert (tmp_path / "outbox" / f"{runs[0]}.jsonl").exists()


def test_the_end_of_a_sweep_sends_what_an_earlier_crash_left(store, sweep, tmp_path):
    plan, sweep_run_id, runs = sweep
    experiment = store.get_run(runs[0]).info.experiment_id
    earlier = store.client.create_run(experiment).info.run_id
    left = Recorder(replace(attach("http://127.0.0.1:9"), patience=0.0), earlier, outbox=tmp_path)
    left.log({"loss/train": 0.5}, 0)
    assert not left.close(timeout=0.1)
    journal = tmp_path / f"{earlier}.jsonl"
    journal.write_text(journal.read_text().replace("http://127.0.0.1:9", store.uri))  # the store is reached again
    for run_id in runs:
        store.set_tags(run_id, {"status": "finished"})
        store.end_run(run_id, "FINISHED")
    conduct([Opened(plan, "cut", sweep_run_id, indices=[])], store, tmp_path)
    assert store.get_run(earlier).data.metrics["loss/train"] == 0.5
    assert not journal.exists()
