"""Settings of a network of each system: its figure's own, unless others are asked for."""

import pytest

from featurelab.pipelines.cross.every_system import GIVEN, NETWORKS, figure, observed
from featurelab.pipelines.engine.experiment.catalogue.registry import find


@pytest.mark.parametrize("network", list(NETWORKS))
def test_a_network_keeps_the_settings_of_its_figure_unless_others_are_asked_for(network):
    own = find(f"{network}/{NETWORKS[network].figure}").laptop
    config = figure.laptop.but(network=network)
    kept = observed(config).config
    known = [key for key in GIVEN if key in type(own).model_fields]
    assert {key: getattr(kept, key) for key in known} == {key: getattr(own, key) for key in known}
    asked = "64-true" if own.precision == "32-true" else "32-true"
    changed = observed(config.but(precision=asked, lr=0.0123)).config
    assert changed.precision == asked
    assert changed.lr == 0.0123
