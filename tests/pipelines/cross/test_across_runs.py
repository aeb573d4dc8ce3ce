"""Runs compared where their classes have collapsed equally far."""

import numpy as np
import pandas as pd
import pytest

from featurelab.pipelines import Missing
from featurelab.pipelines.cross.across_runs import MATCHED, PAIRS, met, within_pairs
from featurelab.pipelines.engine.experiment.results import Results

STEPS = [0, 10, 20]


def results(falls):
    """Runs whose NC1 falls by these factors every ten steps from e MATCHED, and whose other measures are the step."""
    pairs = [PAIRS[number % len(PAIRS)] for number in range(len(falls))]
    trials = pd.DataFrame({"run_id": [str(n) for n in range(len(falls))], "status": "finished", "seed": 0})
    trials["unseen_digits"] = pairs

    def read(metric):
        nc1 = metric.startswith("nc1")
        values = [np.e * MATCHED * fall ** (step / 10) if nc1 else step for fall in falls for step in STEPS]
        rows = {"run_id": [str(n) for n in range(len(falls)) for _ in STEPS], "step": STEPS * len(falls)}
        return pd.DataFrame(rows | {"value": values})

    return Results(trials, read, load=lambda *_: {})


def test_runs_are_read_where_they_first_reach_the_common_nc1():
    found = met(results([np.exp(-1), np.exp(-2), np.exp(-0.8), np.exp(-0.625)]))
    assert found["nfa"] == pytest.approx([10, 5, 12.5, 16])
    assert found["recall"] == pytest.approx(found["cnfa"])
    assert list(found["before"]) == [0] * 4
    assert list(found["end"]) == [20] * 4


def test_runs_that_never_reach_the_common_nc1_are_left_out_and_half_of_them_must():
    falls = [np.exp(-1), 1.0, np.exp(-2), np.exp(-1), np.exp(-1)]
    assert list(met(results(falls))["pair"]) == [0, 2, 0, 1]
    with pytest.raises(Missing, match="3 of 4 runs reach NC1"):
        met(results([np.exp(-1), np.exp(-1), np.exp(-1), 1.0]))


def test_within_pairs_subtracts_the_mean_of_each_pair():
    found = {"pair": np.array([0, 0, 1, 1]), "nfa": np.array([1.0, 3.0, 10.0, 20.0])}
    assert list(within_pairs(found, "nfa")) == [-1.0, 1.0, -5.0, 5.0]
