"""A map is a figure's grid in every cell of listed settings; each cell is judged by its own trials."""

import itertools

import pytest

from featurelab.pipelines.engine.errors import RequestError
from featurelab.pipelines.engine.experiment.axes import parse_axes
from featurelab.pipelines.engine.experiment.bounds import above
from featurelab.pipelines.engine.experiment.claims import Verdict
from featurelab.pipelines.engine.experiment.config import Config
from featurelab.pipelines.engine.experiment.cost import CPU_FLOPS, Cost
from featurelab.pipelines.engine.experiment.experiment import Experiment
from featurelab.pipelines.engine.sweep.plan import Plan
from featurelab.pipelines.engine.verdict.maps.mapping import cells_of, plan_map
from featurelab.pipelines.engine.verdict.maps.picture import COLOURS, MARKS, picture


class Line(Config):
    slope: float = 1.0
    width: int = 4
    lr: float = 0.1


def made():
    details = {"figures": ("Fig. 1",), "title": "lines", "laptop": Line(), "paper": Line(), "minutes": 2.0}
    figure = Experiment(name="madeup/mapped", grid={"slope": [1.0, 2.0], "seed": [0, 1, 2]}, **details)
    figure.trial(lambda config, recorder: None)
    figure.claim("rises", says="lines rise", expect=above(0))(lambda runs: 1.0)
    return figure


def axes(*over):
    return parse_axes(over, Line)


def test_a_map_is_the_grid_in_every_cell_and_each_trial_knows_its_cell():
    figure = made()
    plan = plan_map(figure, axes("lr=0.1,0.2", "width=8,16"), "laptop")
    cells = [{"lr": lr, "width": width} for lr, width in itertools.product((0.1, 0.2), (8, 16))]
    assert cells_of(plan) == cells
    for cell in cells:
        inside = [config for config in plan.configs if plan.cell(config) == cell]
        assert inside == [config.model_dump(mode="json") for config in figure.configs("laptop", cell)]
    assert len(plan.configs) == 4 * 6
    assert Plan.model_validate_json(plan.model_dump_json()).over == ["lr", "width"]


@pytest.mark.parametrize(
    ("over", "named"),
    [
        (["slope=1,2"], "slope is set by the grid"),
        (["seed=1,2"], "seed is set by the grid"),
        (["lr=loguniform(1e-3,1)"], "lr=loguniform"),
        (["width=8,x"], "width"),
        ([], "--over"),
        ([f"width={','.join(map(str, range(1, 102)))}"], "101 cells"),
    ],
)
def test_what_cannot_be_mapped_is_refused(over, named):
    with pytest.raises(RequestError, match=named.replace("(", r"\(")):
        plan_map(made(), axes(*over), "laptop")


def test_settings_of_the_grid_cannot_be_changed():
    figure = made()
    assert {config.lr for config in figure.configs("laptop", {"lr": 0.7})} == {0.7}
    with pytest.raises(RequestError, match="slope is set by the grid of madeup/mapped"):
        figure.configs("laptop", {"slope": 3.0})


def test_another_first_seed_moves_the_seeds_of_the_grid_and_changes_nothing_else():
    figure = made()
    own, moved = figure.configs("laptop"), figure.configs("laptop", {"seed": 100})
    assert [config.seed for config in moved] == [config.seed + 100 for config in own]
    assert [config.but(seed=0) for config in moved] == [config.but(seed=0) for config in own]
    with pytest.raises(RequestError, match="seed = '-1'"):
        figure.configs("laptop", {"seed": "-1"})


def test_estimated_minutes_grow_with_the_declared_cost():
    figure = made()
    twice = figure.configs("laptop", {"lr": 0.2}) + figure.configs("laptop", {"lr": 0.3})
    assert figure.minutes_of(twice) == pytest.approx(4.0)
    figure.cost(lambda config: Cost(1, CPU_FLOPS * config.width, 0.0, steps=0))
    assert figure.minutes_of(figure.configs("laptop")) == pytest.approx(2.0)
    assert figure.minutes_of(figure.configs("laptop", {"width": 12})) == pytest.approx(6.0)


def verdict(status, measured):
    facts = {"statement": "s", "origin": "paper", "documented": None, "reason": "", "where": "", "seeds": 3}
    return Verdict(id="rises", status=status, measured=measured, ci=None, expected="> 0", paper=None, **facts)


def test_the_picture_shows_the_verdict_and_the_value_of_each_cell_at_its_place():
    from matplotlib.colors import to_hex

    configs = [{"lr": lr, "width": w, "depth": d} for lr in (0.1, 0.2) for w in (8, 16, 32) for d in (1, 2)]
    statuses = list(itertools.islice(itertools.cycle(COLOURS), len(configs)))
    verdicts = [verdict(status, None if status == "untested" else 0.5 + i) for i, status in enumerate(statuses)]
    panels = picture("title", ["lr", "width", "depth"], configs, verdicts).axes
    assert [panel.get_title() for panel in panels] == ["depth = 1", "depth = 2"]
    for config, one in zip(configs, verdicts, strict=True):
        panel = panels[config["depth"] - 1]
        place = ((0.1, 0.2).index(config["lr"]), (8, 16, 32).index(config["width"]))
        (text,) = [text.get_text() for text in panel.texts if text.get_position() == place]
        value = "not measured" if one.measured is None else f"{one.measured:g}"
        assert text == f"{MARKS[one.status]}\n{value}"
        corner = (place[0] - 0.47, place[1] - 0.47)
        (square,) = [patch for patch in panel.patches if patch.get_xy() == corner]
        assert to_hex(square.get_facecolor()) == COLOURS[one.status]


def test_what_nothing_is_documented_of_surprises_nobody():
    assert not verdict("fails", -1.0).surprising
