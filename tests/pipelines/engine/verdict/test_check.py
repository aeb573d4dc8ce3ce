"""What `featurelab check` finds before it runs a figure."""

import pytest
from pydantic import Field, model_validator

from featurelab.pipelines.engine.errors import RequestError
from featurelab.pipelines.engine.experiment.bounds import below
from featurelab.pipelines.engine.experiment.config import Config
from featurelab.pipelines.engine.experiment.cost import Cost
from featurelab.pipelines.engine.experiment.experiment import Experiment
from featurelab.pipelines.engine.verdict.check import Broken, missing


class Shape(Config):
    width: int = Field(1, ge=1)
    depth: int = Field(1, ge=1)

    @model_validator(mode="after")
    def not_too_large(self):
        if self.width * self.depth > 2:
            raise ValueError("width and depth are too large together")
        return self


def declared(**grid):
    figure = Experiment(
        name="lab/crossed",
        title="A title",
        laptop=Shape(),
        paper=Shape(),
        grid=grid | {"seed": [0]},
        metric="loss",
        minutes=1,
    )
    figure.trial(lambda config, recorder: None)
    return figure


def test_a_value_that_no_trial_accepts_is_refused_where_the_figure_is_declared():
    with pytest.raises(RequestError, match="depth = 0"):
        declared(width=[1, 2], depth=[1, 0])


def test_a_crossing_that_no_trial_accepts_is_named_by_the_check():
    figure = declared(width=[1, 2], depth=[1, 2])
    with pytest.raises(Broken, match=r"the laptop grid: .*width and depth are too large together"):
        list(missing(figure))


def test_a_claim_that_depends_on_the_order_of_trials_is_named_by_the_check():
    figure = Experiment(
        name="lab/ordered",
        title="A title",
        laptop=Shape(),
        paper=Shape(),
        grid={"width": [1, 2], "seed": [0, 1, 2]},
        metric="loss",
        minutes=1,
    )
    figure.trial(lambda config, recorder: recorder.log({"loss": config.width + 0.1 * config.seed}, step=0))
    figure.cost(lambda config: Cost(1, 1.0, 1.0, 1))

    @figure.claim("of_the_first", says="It is small", expect=below(5))
    def of_the_first(runs):
        return runs.final("loss", width=runs.values("width")[0])

    @figure.claim("of_the_smallest", says="It is small", expect=below(5))
    def of_the_smallest(runs):
        return runs.final("loss", width=min(runs.values("width")))

    found = [said for said in missing(figure) if "order of trials" in said]
    assert len(found) == 1
    assert "of_the_first" in found[0]


def measured(seeds, small):
    figure = Experiment(
        name="lab/seeded",
        title="A title",
        laptop=Shape(),
        paper=Shape(),
        grid={"seed": seeds},
        metric="loss",
        minutes=1,
        small=small,
    )
    figure.trial(lambda config, recorder: recorder.log({"loss": config.width + 0.1 * config.seed}, step=0))
    figure.cost(lambda config: Cost(1, 1.0, 1.0, 1))
    figure.claim("it_is_small", says="The loss is small", expect=below(5))(lambda runs: runs.final("loss"))
    return [said for said in missing(figure) if "claim it_is_small" in said]


@pytest.mark.parametrize("small", [{}, {"seed": [0]}])
def test_a_grid_with_fewer_seeds_than_a_claim_needs_is_named_by_the_check_however_few_it_runs(small):
    assert measured([0, 1], small) == ["claim it_is_small needs 3 seeds, and the laptop grid has 2"]
    assert measured([0, 1, 2], small) == []
