"""Every figure on gradient features, run small."""

import pytest

from featurelab.pipelines.engine.experiment.catalogue import registry
from featurelab.pipelines.engine.verdict.check import missing

FIGURES = registry.experiments("gradient_features")


@pytest.mark.usefixtures("shared_trials")
@pytest.mark.parametrize("experiment", FIGURES, ids=lambda experiment: experiment.name.partition("/")[2])
def test_nothing_is_missing_of_a_small_figure(experiment):
    assert list(missing(experiment)) == []
