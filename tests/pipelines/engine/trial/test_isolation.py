"""The kernels that the libraries choose are part of what a run records of its environment."""

import json
import os
import subprocess
import sys

import pytest

from featurelab.pipelines.engine.experiment.config import Config
from featurelab.pipelines.engine.experiment.experiment import Experiment
from featurelab.pipelines.engine.trial.run import run_trial
from featurelab.tracking.provenance import changes, environment

CODE = (
    "import json, numpy; from featurelab.pipelines.engine.trial.environment import dispatch; "
    "print(json.dumps(dispatch()))"
)


def found(before="", **variables):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("ATEN_", "ONEDNN_", "OPENBLAS_CORE", "MKL_"))}
    done = subprocess.run(
        [sys.executable, "-c", before + CODE], env=clean | variables, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def usual():
    return found()


def test_other_kernels_are_named_whoever_chose_them(usual):
    other = found(ATEN_CPU_CAPABILITY="default", ONEDNN_MAX_CPU_ISA="SSE41", OPENBLAS_CORETYPE="Nehalem")
    assert other["torch kernels"] in ("DEFAULT", "NO AVX")  # the second in torch 2.6
    assert usual["torch kernels"] != other["torch kernels"]
    lines = changes(environment(dispatch=usual), environment(dispatch=other))
    assert f"torch kernels: {usual['torch kernels']} -> {other['torch kernels']}" in lines
    assert "ONEDNN_MAX_CPU_ISA: none -> SSE41" in lines
    assert [line for line in lines if line.startswith("openblas kernels: ") and line.endswith("Nehalem")]
    assert changes(environment(dispatch=usual), environment(dispatch=dict(usual))) == []


def test_what_else_is_loaded_by_then_makes_no_difference(usual):
    assert found("import scipy.linalg, numpy; ") == usual  # the other way round from how we load them


def test_runs_of_versions_that_did_not_record_them_are_not_said_to_differ():
    assert changes(environment(), environment(dispatch={"torch kernels": "AVX2"})) == []


def test_a_trial_records_them(store, tmp_path):
    experiment = Experiment(
        name="tests/kernels", title="", laptop=Config(), paper=Config(), grid={"seed": [0]}, minutes=0.1
    )
    experiment.trial(lambda config, recorder: recorder.log({"loss/test": 1.0}, 0))
    run_id = run_trial(experiment, Config(), store, scale="laptop", outbox=tmp_path).run_id
    assert "torch kernels" in store.read_json(run_id, "environment.json")["dispatch"]
