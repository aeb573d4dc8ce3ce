"""The figures on pictures at their desktop presets, on a few pictures in the place of CIFAR-10."""

import pytest
from publicfiles import public_images  # noqa: F401

from featurelab.pipelines.engine.verdict.check import drawn, performed
from featurelab.pipelines.neural_feature_ansatz import face_features, on_images, street_numbers

FEW = {
    face_features.figure: {"n_train": 12, "width": 8, "epochs": 2, "batch_size": 4, "measure_every": 1},
    street_numbers.figure: {"n_train": 40, "n_test": 20, "width": 8, "epochs": 4, "measure_every": 2},
    on_images.mlp: on_images.mlp.small | {"n_test": 20},
    on_images.cnn: on_images.mlp.small | {"n_test": 20},
}


@pytest.mark.usefixtures("public_images")
@pytest.mark.parametrize("figure", FEW, ids=lambda figure: figure.name)
def test_claims_are_measured_and_figures_drawn_of_photographs(figure):
    configs = [config.but(**FEW[figure]) for config in figure.configs("desktop") if config.seed == 0]
    results = performed(figure, configs)
    assert [verdict for verdict in (c.judge(results) for c in figure.claims) if verdict.measured is None] == []
    if figure in (face_features.figure, street_numbers.figure):
        assert {image.shape for kept in results.arrays("diagonals") for image in kept.values()} == {(32, 32)}
    assert all(axis.has_data() for axis in drawn(figure, results).axes)
