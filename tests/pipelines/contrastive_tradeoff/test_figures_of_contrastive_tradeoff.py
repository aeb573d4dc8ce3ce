"""Every figure, run whole at its small sizes: all that it declares is there, and measured."""

import pytest

from featurelab.pipelines.engine.experiment.catalogue import registry
from featurelab.pipelines.engine.verdict.check import missing


@pytest.mark.usefixtures("shared_trials")
@pytest.mark.parametrize("experiment", registry.experiments("contrastive_tradeoff"), ids=lambda e: e.name)
def test_nothing_is_missing_of_a_figure(experiment):
    assert list(missing(experiment)) == []
