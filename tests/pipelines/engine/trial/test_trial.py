"""One run: what it depends on, what it leaves behind, and how each way to end is recorded."""

import contextlib
import json
import os
import random
import re
import shutil
import signal
import threading

import numpy as np
import pytest
import torch
from mlflow import MlflowClient
from pytorch_lightning import Callback

from featurelab.modules import data, learners, nets
from featurelab.pipelines.engine.experiment.catalogue import registry
from featurelab.pipelines.engine.experiment.config import Config
from featurelab.pipelines.engine.experiment.experiment import Experiment
from featurelab.pipelines.engine.trial.ending import Outcome
from featurelab.pipelines.engine.trial.fitting.fit import fit
from featurelab.pipelines.engine.trial.place import Runtime, running_in
from featurelab.pipelines.engine.trial.run import perform, run_trial
from featurelab.pipelines.engine.trial.signals import Terminated
from featurelab.pipelines.engine.verdict.check import MemoryRecorder
from featurelab.tracking.store.connect import attach

INIT_SCALE = registry.find("neural_feature_ansatz/init_scale")
TINY = INIT_SCALE.laptop.but(n_train=32, n_test=16, dim=8, rank=3, width=16, steps=20, measure_every=10)


@pytest.fixture(scope="module")
def store(template, tmp_path_factory):
    return attach(f"sqlite:///{shutil.copy(template, tmp_path_factory.mktemp('store') / 'mlflow.db')}")


@pytest.fixture
def run(store, tmp_path):
    """Run a trial and return its outcome; its run is then read through MLflow's own client."""

    def go(experiment, config, **details):
        return run_trial(experiment, config, store, scale="laptop", outbox=tmp_path / "outbox", **details)

    return go


@pytest.fixture(autouse=True)
def same_handlers():
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def made_of(function, name="tests/made_up"):
    """An experiment whose trial is this function."""
    return Experiment(
        name=name,
        figures=("Fig. 0",),
        title="t",
        laptop=Config(),
        paper=Config(),
        grid={"seed": [0]},
        minutes=1,
        run_trial=function,
    )


def stored(store, outcome):
    return MlflowClient(store.uri).get_run(outcome.run_id)


def performed(config, experiment=INIT_SCALE):
    kept = MemoryRecorder()
    perform(experiment, config, kept)
    return kept


@pytest.fixture(scope="module")
def first():
    return performed(TINY)


def same_bits(one, other):
    assert one.weights.keys() == other.weights.keys()
    return one.curves == other.curves and all(
        torch.equal(one.weights[name], other.weights[name]) for name in one.weights
    )


def test_one_seed_gives_the_same_bits_whatever_ran_before(first):
    torch.manual_seed(99)
    np.random.seed(99)  # noqa: NPY002 - what a stranger's code may do
    random.seed(99)
    again = performed(TINY)
    assert set(first.curves) >= {"loss/train", "loss/test", "nfa/0", "cnfa/1", "catapult"}
    assert first.weights
    assert same_bits(first, again)
    assert again.digest == first.digest


def test_another_seed_gives_other_data_and_other_weights(first):
    other = performed(TINY.but(seed=1))
    assert other.digest != first.digest
    assert not same_bits(first, other)
    assert other.curves["loss/train"][20] != first.curves["loss/train"][20]


def test_what_is_varied_does_not_change_the_data(first):
    for changes in ({"width": 24}, {"lr": 0.01}, {"init_scale": 0.1}, {"hidden": 1}, {"steps": 10}):
        other = performed(TINY.but(**changes))
        assert other.digest == first.digest
        assert other.curves != first.curves
    assert performed(TINY.but(n_train=33)).digest != first.digest


def test_measuring_more_often_changes_nothing_that_both_measure(first):
    finer = performed(TINY.but(measure_every=1))
    for metric in ("loss/train", "nfa/0"):
        assert len(finer.curves[metric]) == 21
        for step, value in first.curves[metric].items():
            assert finer.curves[metric][step] == pytest.approx(value, rel=1e-9)


def state():
    return torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()


@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt])
def test_threads_and_determinism_are_set_inside_and_put_back(error):
    torch.set_num_threads(1)
    seen = []

    def trial(config, recorder):
        seen.append(state())
        seen.append((torch.rand(1).item(), np.random.rand(), random.random()))  # noqa: NPY002
        if error:
            raise error

    outside = contextlib.nullcontext() if error is None else pytest.raises(error)
    with outside:
        perform(made_of(trial), Config(threads=3), MemoryRecorder())
    assert seen[0] == (3, True)
    assert state() == (1, False)
    with outside:
        perform(made_of(trial), Config(threads=2), MemoryRecorder())
    assert seen[2] == (2, True)
    assert seen[3] == seen[1], "the global generators start from the config's seed"


def test_other_libraries_are_held_to_the_threads_of_the_config():
    from threadpoolctl import threadpool_info

    seen = []
    perform(made_of(lambda config, recorder: seen.extend(threadpool_info())), Config(threads=2), MemoryRecorder())
    assert seen
    assert {pool["num_threads"] for pool in seen} == {2}


def test_a_finished_run_holds_all_that_it_takes_to_repeat_it(run, store):
    config = TINY.but(lr=0.02)
    outcome = run(INIT_SCALE, config, axes=["init_scale", "seed"], name="a name", tags={"trial": "7"})
    found, client = stored(store, outcome), MlflowClient(store.uri)
    assert (outcome.status, found.info.status, found.data.tags["status"]) == ("finished", "FINISHED", "finished")
    assert found.info.run_name == "a name"
    assert client.get_experiment(found.info.experiment_id).name == INIT_SCALE.name
    tags = found.data.tags
    assert {tags[k] for k in ("system", "experiment", "figure", "scale", "trial")} == {
        "neural_feature_ansatz",
        "neural_feature_ansatz/init_scale",
        "Fig. 2",
        "laptop",
        "7",
    }
    assert type(config).read(json.loads(tags["config"])) == config
    assert store.read_json(outcome.run_id, "config.json") == json.loads(tags["config"])
    assert store.read_json(outcome.run_id, "environment.json")["threads"] == 1
    differing = {"lr", "n_train", "n_test", "dim", "rank", "width", "steps"}
    assert set(found.data.params) == {"init_scale", "seed"} | differing
    assert found.data.params["lr"] == "0.02"
    history = client.get_metric_history(outcome.run_id, "nfa/0")
    assert [point.step for point in history] == [0, 10, 20]
    assert found.data.metrics["nfa/0"] == history[-1].value
    assert found.inputs.dataset_inputs[0].dataset.digest == performed(config).digest
    weights = torch.load(store.download(outcome.run_id, "checkpoints/last.ckpt"), weights_only=True)["state_dict"]
    assert weights["net.layers.0.weight"].shape == (16, 8)
    assert float(tags["seconds"]) > 0


def test_a_run_is_named_by_what_varies(run, store):
    silent = made_of(lambda config, recorder: recorder.log({"loss/train": 1.0}, step=0))
    assert stored(store, run(silent, Config(), axes=["seed", "threads"])).info.run_name == "threads=1 seed=0"
    assert stored(store, run(silent, Config(threads=2))).info.run_name == "threads=2"
    assert stored(store, run(silent, Config())).info.run_name == "seed=0"


def test_a_loss_that_is_not_finite_ends_a_run_as_diverged_and_keeps_what_came_before(run, store):
    outcome = run(INIT_SCALE, TINY.but(lr=100, weight_decay=0.5, steps=200))
    found = stored(store, outcome)
    assert (outcome.status, found.info.status, found.data.tags["status"]) == ("diverged", "FAILED", "diverged")
    assert outcome.reason.startswith("the training loss is not finite after")
    assert found.data.tags["reason"] == outcome.reason
    first = MlflowClient(store.uri).get_metric_history(outcome.run_id, "loss/train")[0]
    assert (first.step, np.isfinite(first.value)) == (0, True)


def test_a_recorded_loss_of_nan_ends_a_run_as_diverged(run, store):
    outcome = run(made_of(lambda config, recorder: recorder.log({"loss/val": float("nan")}, step=3)), Config())
    assert outcome == Outcome(outcome.run_id, "diverged", "loss/val is nan at step 3")
    assert stored(store, outcome).data.tags["nonfinite/loss/val"] == "3"


def test_an_exception_is_recorded_with_its_traceback(run, store):
    def trial(config, recorder):
        recorder.log({"loss/train": 0.5}, step=1)
        raise RuntimeError("the disk\nis full")

    outcome = run(made_of(trial), Config())
    found = stored(store, outcome)
    assert outcome.status == "failed"
    assert re.fullmatch(r"RuntimeError: the disk \(.*test_trial\.py:\d+ in trial\)", outcome.reason)
    assert (found.info.status, found.data.tags["status"]) == ("FAILED", "failed")
    said = store.download(outcome.run_id, "traceback.txt").read_text()
    assert "is full" in said
    assert "test_trial.py" in said
    assert found.data.metrics["loss/train"] == 0.5


class AtStepTen(Callback):
    """Does something in the middle of a fit, as a listener or a signal would."""

    def __init__(self, action):
        self.action = action

    def on_train_batch_end(self, trainer, *rest):
        if trainer.global_step == 10:
            self.action()


def fitting(action):
    def trial(config, recorder):
        task = data.ChainMonomials(16, 4, 8, 3, seed=0)
        learner = learners.Supervised(nets.mlp(8, 4, 1, seed=0), optimizer=learners.gd(0.01))
        recorder.log({"loss/train": 0.5}, step=1)
        fit(learner, task, Config(precision="64-true"), recorder, steps=5000, probes=[AtStepTen(action)])

    return made_of(trial)


def raising(error):
    def action():
        raise error

    return action


@pytest.mark.parametrize(
    ("error", "status", "ended"),
    [
        (SystemExit(), "stopped", "FINISHED"),
        (SystemExit(0), "stopped", "FINISHED"),
        (SystemExit(3), "failed", "FAILED"),
        (ValueError("no"), "failed", "FAILED"),
    ],
)
def test_what_a_scheduler_or_an_error_does_in_the_middle_of_a_fit_is_told_apart(run, store, error, status, ended):
    outcome = run(fitting(raising(error)), Config())
    found = stored(store, outcome)
    assert (outcome.status, found.data.tags["status"], found.info.status) == (status, status, ended)
    assert found.data.metrics["loss/train"] == 0.5


def last_run(store):
    client = MlflowClient(store.uri)
    return client.search_runs([client.get_experiment_by_name("tests/made_up").experiment_id], max_results=1)[0]


@pytest.mark.parametrize(
    ("number", "raised", "reason"),
    [(signal.SIGINT, KeyboardInterrupt, "interrupted"), (signal.SIGTERM, Terminated, "terminated")],
)
def test_a_signal_in_the_middle_of_a_fit_is_recorded_as_killed_and_raised_again(run, store, number, raised, reason):
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(raised):
        run(fitting(lambda: os.kill(os.getpid(), number)), Config())
    found = last_run(store)
    assert (found.info.status, found.data.tags["status"], found.data.tags["reason"]) == ("KILLED", "killed", reason)
    assert found.data.metrics["loss/train"] == 0.5
    assert signal.getsignal(signal.SIGTERM) is before
    assert not torch.are_deterministic_algorithms_enabled()


def test_a_trial_may_run_in_a_thread_other_than_the_main_one(first):
    found = []
    thread = threading.Thread(target=lambda: found.append(performed(TINY)))
    thread.start()
    thread.join()
    assert same_bits(found[0], first)


def test_of_several_workers_only_the_first_records(run, store):
    ran = []

    def trial(config, recorder):
        ran.append(recorder.run_id)
        recorder.log({"loss/train": 1.0}, step=0)
        recorder.json("notes", {"a": 1})

    experiment = made_of(trial, "tests/of_several")
    with running_in(Runtime(rank=1, world_size=2)):
        assert run(experiment, Config()) == Outcome("", "finished")
    assert ran == [""]
    assert MlflowClient(store.uri).get_experiment_by_name("tests/of_several") is None
    assert run(experiment, Config()).run_id == ran[1] != ""


def test_an_experiment_without_a_trial_is_a_failure_that_says_so(run):
    assert run(made_of(None), Config()).reason.startswith("TypeError: tests/made_up declares no trial")
