"""What `featurelab check` finds before it runs a figure."""

import pytest
from pydantic import Field, model_validator

from featurelab.pipelines.engine.errors import RequestError
from featurelab.pipelines.engine.experiment.config import Config
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
