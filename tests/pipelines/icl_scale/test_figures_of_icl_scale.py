"""Every figure on in-context learning at two scales, run small."""

import pytest

from featurelab.pipelines.engine.experiment.catalogue import registry
from featurelab.pipelines.engine.verdict.check import missing


@pytest.mark.usefixtures("shared_trials")
@pytest.mark.parametrize("experiment", registry.experiments("icl_scale"), ids=lambda e: e.name.partition("/")[2])
def test_nothing_is_missing_of_a_small_figure(experiment):
    assert list(missing(experiment)) == []
