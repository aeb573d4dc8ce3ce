"""Every instrument at once: the same numbers as each alone, and a reason for each that a network does not have."""

import pytest
import torch
from torch import nn

from featurelab.modules.data import TensorData
from featurelab.modules.learners import Supervised, sgd
from featurelab.modules.measures import (
    agop,
    ansatz_decomposition,
    class_moments,
    effective_rank,
    nc1,
    tangent_covariance,
)
from featurelab.modules.nets import mlp
from featurelab.modules.probes import InstrumentsProbe
from featurelab.pipelines.engine.experiment.config import Config
from featurelab.pipelines.engine.trial.fitting.fit import trainer_for

X = torch.randn(60, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
Y = torch.arange(60) % 3


def fitted(net, x=X, y=Y, steps=5, loss="cross_entropy", **options):
    probe = InstrumentsProbe(every=100, **options)
    learner = Supervised(net, loss=loss, optimizer=sgd(0.1))
    config = Config(device="cpu")
    trainer = trainer_for(config.but(precision="64-true"), max_steps=steps, callbacks=[probe])
    trainer.fit(learner, datamodule=TensorData((x, y), dtype="float64"))
    return learner, probe


def test_numbers_are_those_of_each_measure_alone():
    learner, probe = fitted(mlp(6, 8, 2, outputs=3, seed=1, dtype="float64"))
    first, net = probe.reference, learner.net.eval()
    (_, before), (step, after) = probe.history
    assert step == 5
    features = torch.relu(net.layers[1](torch.relu(net.layers[0](X)))).detach()
    assert after["nc1"] == pytest.approx(nc1(class_moments(features, Y)).item())
    centred = features - features.mean(0)
    assert after["feature_rank"] == pytest.approx(effective_rank(centred).item() / 8)
    now, start = (tangent_covariance(module, X)["1"] for module in (learner, first))
    assert after["nfa"] == pytest.approx(ansatz_decomposition(now.W, start.W, now.K)["nfa"])
    assert after["cnfa"] == pytest.approx(ansatz_decomposition(now.W, start.W, now.K)["cnfa"])
    assert after["weight_rank"] == pytest.approx(effective_rank(now.W).item() / 8)
    assert after["input_agop_rank"] == pytest.approx(effective_rank(agop(net, X)).item() / 6)
    assert "cnfa" not in before
    assert set(before) | {"cnfa"} == set(after)
    assert probe.skipped == {}


def test_what_a_network_does_not_have_is_named_with_the_reason():
    class Tokens(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.rows, self.head = nn.Embedding(5, 4), nn.Linear(4, 2)

        def forward(self, x):
            return self.head(self.rows(x.long()).mean(1))

    targets = torch.randn(60, 2, generator=torch.Generator().manual_seed(1))
    _, probe = fitted(Tokens(), torch.arange(180).view(60, 3) % 5, targets, loss="mse")
    values = probe.latest()
    assert set(values) == {"feature_rank"}
    assert "inputs are integers" in probe.skipped["input_agop_rank"]
    assert "the same smaller one" in probe.skipped["nc1"]
    assert probe.skipped["nfa"] == "no linear layer comes before the features"


def test_outputs_can_be_the_features_and_the_view_be_another():
    learner, probe = fitted(
        mlp(3, 8, 1, outputs=3, seed=1, dtype="float64"),
        X.view(60, 2, 3)[:, 0],
        Y,
        readout="",
        hidden="0",
        view=lambda x: 2 * x,
        quantities=["nc1", "nfa"],
    )
    outputs = learner.net(2 * X.view(60, 2, 3)[:, 0]).detach()
    assert probe.latest()["nc1"] == pytest.approx(nc1(class_moments(outputs, Y)).item())
    assert set(probe.latest()) == {"nc1", "nfa"}


def test_an_alignment_that_is_1_by_construction_is_left_out():
    _, probe = fitted(mlp(6, 8, 1, outputs=3, seed=1, dtype="float64"), hidden="1")
    assert "nfa" not in probe.latest()
    assert "1 by construction" in probe.skipped["nfa"]


def test_classes_without_samples_are_passed_over():
    _, probe = fitted(mlp(6, 8, 2, outputs=9, seed=1, dtype="float64"), y=Y * 4)
    assert probe.latest()["nc1"] > 0


def test_an_unknown_quantity_is_refused():
    with pytest.raises(ValueError, match="'nc2'; did you mean 'nc1'"):
        InstrumentsProbe(quantities=["nc2"])
