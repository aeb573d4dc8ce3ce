"""Every figure run whole at its small sizes."""

import pytest

from featurelab.pipelines.engine.experiment.catalogue import registry
from featurelab.pipelines.engine.verdict.check import missing


@pytest.mark.usefixtures("shared_trials")
@pytest.mark.parametrize("figure", registry.experiments("alignment_elasticity"), ids=lambda figure: figure.name)
def test_nothing_is_missing_of_a_figure(figure):
    assert list(missing(figure)) == []
