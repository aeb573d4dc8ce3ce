"""Trials that could not say how they ended: each gets a final state, and the reason that is known."""

import atexit
import shutil
from dataclasses import replace

import pytest

from featurelab.pipelines.engine.experiment.catalogue import registry
from featurelab.pipelines.engine.sweep.begin import open_sweep
from featurelab.pipelines.engine.sweep.conduct import conduct
from featurelab.pipelines.engine.sweep.plan import Opened, Plan
from featurelab.pipelines.engine.sweep.ray.workarounds import NO_MEMORY
from featurelab.pipelines.engine.sweep.reports import Reports
from featurelab.pipelines.engine.sweep.settle import DELETED, STOPPED, settle
from featurelab.pipelines.engine.trial.record import open_run
from featurelab.tracking.outbox.record import Recorder
from featurelab.tracking.store.connect import attach

DIED = (
    "Failure # 1 (occurred at 2026-11-21_15-52-50)\nThe actor died unexpectedly before finishing this task.\n"
    "\tclass_name: ImplicitFunc\nThe actor is dead because its worker process has died. Worker exit type: ...\n"
)
REFUSED = (
    "Traceback (most recent call last):\n  ...\n"
    "featurelab.tracking.errors.StoreError: the store at X cannot be written: the disk is full\n\n"
)


@pytest.fixture(scope="module")
def store(template, tmp_path_factory):
    return attach(f"sqlite:///{shutil.copy(template, tmp_path_factory.mktemp('store') / 'mlflow.db')}")


@pytest.fixture
def sweep(store):
    """A plan of three trials of which two opened a run: (plan, id of the sweep, ids of the runs)."""
    experiment = registry.find("neural_feature_ansatz/init_scale")
    plan = Plan.of(experiment, experiment.configs("laptop")[:3], experiment.varied("laptop"), "laptop", name="cut")
    sweep_run_id = open_sweep(plan, "cut", store)
    runs = []
    for index in range(2):
        details = {"tags": {"sweep": "cut", "sweep_run_id": sweep_run_id}, "place": {"index": index}, "name": ""}
        runs.append(open_run(experiment, plan.config(index), store, scale="laptop", axes=plan.axes, **details))
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
    trials = settle(plan, sweep_run_id, store, tmp_path, Reports(errors={0: error, 2: error}))
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
    trials = settle(plan, sweep_run_id, store, tmp_path / "outbox", Reports())
    assert trials[0].reason.startswith("what it recorded could not be sent: ")
    assert "is for the store at http://127.0.0.1:9" in trials[0].reason
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
    conduct(lambda: [Opened(plan, "cut", sweep_run_id, indices=[])], store, tmp_path)
    assert store.get_run(earlier).data.metrics["loss/train"] == 0.5
    assert not journal.exists()


def test_a_trial_that_the_scheduler_stopped_is_not_blamed_on_its_worker(store, sweep, tmp_path):
    plan, sweep_run_id, runs = sweep
    recorder = Recorder(store, runs[0], outbox=tmp_path, flush_seconds=60)
    for step in range(50):
        recorder.log({"loss/test": 1 / (step + 1)}, step)
    atexit.unregister(recorder._close_at_exit)  # as when the process is ended while the trial closes its run
    recorder._sender._stop.set()
    recorder._journal.close()
    trials = settle(plan, sweep_run_id, store, tmp_path, Reports(stopped={0}))
    assert (trials[0].status, trials[0].reason, trials[0].cut_short) == ("stopped", STOPPED, False)
    assert store.get_run(runs[0]).info.status == "FINISHED"
    assert len(store.client.get_metric_history(runs[0], "loss/test")) == 50
    assert (trials[1].status, trials[1].reason) == ("failed", "its worker process died")


def test_what_a_trial_said_of_its_end_is_believed(store, sweep, tmp_path):
    plan, sweep_run_id, _ = sweep
    trials = settle(plan, sweep_run_id, store, tmp_path, Reports(reasons={0: "the journal was removed", 2: "no GPU"}))
    assert [trial.reason for trial in trials] == ["the journal was removed", "its worker process died", "no GPU"]


def test_a_trial_whose_run_was_deleted_is_not_blamed_on_its_worker(store, sweep, tmp_path):
    plan, sweep_run_id, runs = sweep
    store.client.delete_run(runs[0])
    trials = settle(plan, sweep_run_id, store, tmp_path, Reports())
    assert (trials[0].status, trials[0].reason, trials[0].run_id) == ("failed", DELETED, "")


def test_a_sweep_that_ends_early_says_why_of_each_trial(store, sweep, tmp_path):
    plan, sweep_run_id, runs = sweep
    trials = settle(plan, sweep_run_id, store, tmp_path, Reports(), ended_early="Ray's raylet died")
    assert [(trial.status, trial.reason) for trial in trials] == [
        ("killed", "Ray's raylet died"),
        ("killed", "Ray's raylet died"),
        ("killed", "Ray's raylet died before it began"),
    ]
    assert {store.get_run(run_id).info.status for run_id in runs} == {"KILLED"}
