"""Each network's figure, run small."""

import pytest

from featurelab.pipelines.engine.experiment.catalogue import registry
from featurelab.pipelines.engine.verdict.check import missing


@pytest.mark.usefixtures("shared_trials")
@pytest.mark.parametrize("experiment", registry.experiments("cross"), ids=lambda experiment: experiment.name)
def test_nothing_is_missing_of_a_small_figure(experiment):
    assert list(missing(experiment)) == []
