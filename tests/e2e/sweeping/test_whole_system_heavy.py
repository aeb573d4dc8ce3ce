"""Every figure of a system at laptop scale, judged and repeated: a quarter of an hour, so marked heavy."""

import pytest
from commandline import CommandLine

pytestmark = pytest.mark.heavy


def test_every_verdict_is_as_documented_and_every_experiment_repeats_bit_for_bit(featurelab: CommandLine) -> None:
    judged = featurelab("reproduce", "neural_feature_ansatz", "--json", timeout=3000).document["experiments"]
    claims = [claim for experiment in judged for claim in experiment["claims"]]
    assert all(claim["status"] == claim["documented"] for claim in claims)
    assert all(claim["seeds"] >= 3 for claim in claims)
    for experiment in judged:
        trial = featurelab.runs(experiment["name"])[-1].info.run_id
        repeated = featurelab("rerun", trial, "--json").document
        assert repeated["identical"], (experiment["name"], repeated["differences"])
        assert repeated["max_abs_diff"] == 0.0
