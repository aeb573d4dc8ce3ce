"""What a terminal of 80 columns shows: names and ids stay whole, and nothing is wider than the terminal."""

import io
import re

import pytest
from rich.cells import cell_len
from rich.console import Console

from featurelab.pipelines.engine.command import terminal
from featurelab.pipelines.engine.experiment.catalogue import registry
from featurelab.pipelines.engine.experiment.claims import Verdict
from featurelab.pipelines.engine.sweep.search.best import Ranked
from featurelab.pipelines.engine.trial.record import TrialRecord

EXPERIMENTS = registry.experiments()


def shown(table, width=80):
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(table)
    text = out.getvalue()
    assert all(cell_len(line) <= width for line in text.splitlines())  # b̃ is two characters in one cell
    return text


def whole(text, names):
    """Whether each name stands in one line, with nothing of another word around it."""
    return all(re.search(rf"(?<![\w/]){re.escape(name)}(?![\w/])", text) for name in names)


@pytest.mark.parametrize("width", [80, 100, 200])
def test_a_listing_keeps_names_whole(width):
    assert whole(shown(terminal.experiment_table(EXPERIMENTS), width), [experiment.name for experiment in EXPERIMENTS])


@pytest.mark.parametrize("width", [80, 100, 200])
@pytest.mark.parametrize("system", registry.systems())
def test_claims_keep_their_ids_whole(system, width):
    for experiment in registry.experiments(system):
        claims = experiment.describe("laptop")["claims"]
        ids = [claim["id"] for claim in claims]
        assert whole(shown(terminal.claim_table(claims), width), ids)
        verdicts = [
            Verdict(
                id=claim["id"],
                statement=claim["statement"],
                origin=claim["origin"],
                status="fails",
                documented="holds",
                reason="for a reason " * 9,
                measured={"a part of it": 1.23456789, "another": -1e-9},
                ci={"a part of it": (0.1, 0.2), "another": (0.1, 0.2)},
                expected=claim["expected"],
                paper=claim["paper"],
                where="Fig. 1",
                seeds=3,
            )
            for claim in claims
        ]
        text = shown(
            terminal.verdict_table(f"{experiment.name}: 12 trials in 1 s, sweep {'0123456789abcdef' * 2}", verdicts),
            width,
        )
        assert whole(text, [*ids, "0123456789abcdef" * 2])
        assert "1.23" in text or not ids


def test_a_sweep_keeps_run_ids_and_settings_whole():
    trials = [
        TrialRecord(
            experiment="s/e",
            scale="laptop",
            config={},
            index=i,
            status="finished",
            run_id=f"{i:032x}",
            name=f"lr=0.00{i}1 init_scale=0.001 width=256 weight_decay=0.0001 seed={i}",
            metrics={"loss/test": 0.1},
        )
        for i in range(3)
    ]
    values = {trial.run_id: 0.1 for trial in trials}
    text = shown(terminal.sweep_table(Ranked(trials, values, "loss/test", "min", "3 finished trials")))
    assert whole(text, [trial.run_id for trial in trials])
    assert whole(text, ["lr=0.0011", "width=256", "seed=2"])
