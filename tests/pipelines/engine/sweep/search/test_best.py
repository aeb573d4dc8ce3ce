"""The best trial is one that finished; where none did, trials are compared at a step that all recorded."""

import math
import shutil

import pytest
from mlflow.entities import Metric

from featurelab.pipelines.engine.sweep.search.best import rank
from featurelab.pipelines.engine.trial.record import TrialRecord
from featurelab.tracking.store.connect import attach

METRIC = "loss/test"


@pytest.fixture(scope="module")
def store(template, tmp_path_factory):
    return attach(f"sqlite:///{shutil.copy(template, tmp_path_factory.mktemp('store') / 'mlflow.db')}")


@pytest.fixture
def trials(store):
    """Makes trials with these (status, values at the steps 0, 10, 20, ...)."""

    def made(*curves):
        found = []
        for index, (status, values) in enumerate(curves):
            run_id = store.start_run("s/e", str(index), tags={})
            points = [Metric(METRIC, value, 0, 10 * step) for step, value in enumerate(values)]
            if points:
                store.log_metrics(run_id, points)
            said = {"run_id": run_id, "name": str(index), "config": {}, "status": status}
            metrics = {METRIC: values[-1]} if values and not math.isnan(values[-1]) else {}
            found.append(TrialRecord(experiment="s/e", scale="laptop", index=index, metrics=metrics, **said))
        return found

    return made


def order(ranked):
    return [trial.index for trial in ranked.trials]


def test_only_trials_that_finished_are_ranked_and_all_others_come_after_them(store, trials):
    found = trials(
        ("stopped", [1.5, 0.1]),
        ("finished", [1.4, 1.6, 1.7]),
        ("diverged", [1.0, -9.0]),
        ("failed", [0.2]),
        ("finished", [1.4, 1.5, 1.6]),
        ("killed", [0.3]),
        ("stopped", [0.05]),
        ("failed", []),
    )
    ranked = rank(found, METRIC, "min", store)
    assert order(ranked) == [4, 1, 6, 0, 5, 3, 7, 2]
    assert ranked.line() == f"best loss/test: 1.6 in {found[4].run_id} (among 2 finished trials)"
    by = {"metric": METRIC, "mode": "min", "value": 1.6, "step": None, "among": "2 finished trials"}
    assert ranked.as_dict() == found[4].as_dict() | {"ranked": by}
    assert order(rank(found, METRIC, "max", store))[0] == 1


def test_a_trial_without_a_finite_last_value_is_never_best(store, trials):
    found = trials(("finished", [1.0, math.nan]), ("finished", [1.0]))
    infinite = found[1].model_copy(update={"metrics": {METRIC: math.inf}})
    for mode in ("min", "max"):
        ranked = rank([found[0], infinite], METRIC, mode, store)
        assert (ranked.best, ranked.as_dict()) == (None, None)
    assert ranked.line() == "no best trial by loss/test: none of those that finished recorded it"


def test_where_none_finished_stopped_trials_are_ranked_at_the_last_step_that_all_recorded(store, trials):
    found = trials(("stopped", [3.0, 2.0, 0.1]), ("stopped", [3.0, 1.0]), ("killed", [0.0]), ("stopped", [2.0, 1.5]))
    ranked = rank(found, METRIC, "min", store)
    assert order(ranked) == [1, 3, 0, 2]
    assert ranked.line() == (
        f"best loss/test at step 10: 1 in {found[1].run_id} "
        "(among 3 stopped trials at the last step that all recorded; none finished)"
    )
    assert ranked.as_dict()["ranked"]["step"] == 10


def test_without_a_trial_to_rank_it_is_said_why_there_is_no_best_one(store, trials):
    assert rank(trials(("failed", [1.0]), ("diverged", [1.0])), METRIC, "min", store).line() == (
        "no best trial by loss/test: none finished"
    )
