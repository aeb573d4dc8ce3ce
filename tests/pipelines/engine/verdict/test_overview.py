"""A sweep of one's own is drawn against its axes: every trial once, the best marked, what is missing counted."""

import math

import pytest

from featurelab.pipelines.engine.trial.record import TrialRecord
from featurelab.pipelines.engine.verdict.overview import overview


def trial(index, value, status="finished", **config):
    metrics = {} if value is None else {"loss/test": value}
    said = {"run_id": f"{index:032x}", "name": str(index), "config": config, "status": status, "metrics": metrics}
    return TrialRecord(experiment="s/e", scale="laptop", index=index, **said)


def points(panel):
    """What is drawn as points, by label: places and heights."""
    return {
        drawn.get_label(): [tuple(map(float, place)) for place in drawn.get_offsets()] for drawn in panel.collections
    }


def test_every_trial_is_a_point_at_its_value_of_each_axis():
    found = [trial(i, 1.0 + i, lr=10.0**-i, width=(16, 32)[i % 2]) for i in range(10)]
    figure = overview("mine", found, ["lr", "width"], "loss/test", "min")
    lr, width = figure.axes
    assert sorted(points(lr)["finished"]) == sorted((10.0**-i, 1.0 + i) for i in range(10))
    assert lr.get_xscale() == "log"
    assert [label.get_text() for label in width.get_xticklabels()] == ["16", "32"]
    assert sorted(points(width)["finished"]) == sorted((i % 2, 1.0 + i) for i in range(10))
    assert points(lr)["best"] == [(1.0, 1.0)]
    (medians,) = width.lines
    assert dict(zip(medians.get_xdata(), medians.get_ydata(), strict=True)) == {0: 5.0, 1: 6.0}
    assert (lr.get_xlabel(), width.get_xlabel(), lr.get_ylabel()) == ("lr", "width", "loss/test")
    assert figure.get_suptitle() == "mine"


def test_stopped_trials_are_told_apart_and_those_without_a_value_counted():
    found = [
        trial(0, 0.5, seed=0),
        trial(1, 0.4, "stopped", seed=1),
        trial(2, None, "failed", seed=2),
        trial(3, math.nan, seed=3),
        trial(4, 0.1, "killed", seed=4),
    ]
    figure = overview("mine", found, ["seed"], "loss/test", "max")
    (panel,) = [axes for axes in figure.axes if axes.axison]
    assert {label: len(places) for label, places in points(panel).items()} == {
        "finished": 1,
        "stopped early": 1,
        "best": 1,
    }
    assert points(panel)["best"][0][1] == 0.5
    assert "3 of 5 trials" in figure._supxlabel.get_text()


def test_settings_that_are_no_numbers_stand_side_by_side():
    found = [trial(i, 1.0, optimizer=("gd", "slo")[i % 2], decay=(None, 1.0)[i // 2]) for i in range(4)]
    names, decay, *_ = overview("mine", found, ["optimizer", "decay"], "loss/test", "min").axes
    assert [label.get_text() for label in names.get_xticklabels()] == ["gd", "slo"]
    assert [label.get_text() for label in decay.get_xticklabels()] == ["1", "None"]


@pytest.mark.parametrize("found", [[], [trial(0, None, "failed", lr=1.0)], [trial(0, 1.0, lr=1.0)]])
def test_a_sweep_of_hardly_anything_is_drawn_all_the_same(found, tmp_path):
    overview("mine", found, ["lr"], "loss/test", "min").savefig(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 1000
