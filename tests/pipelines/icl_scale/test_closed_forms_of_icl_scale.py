"""What trials of the figures on closed forms record, against networks that are built and shown prompts."""

import pytest
import torch

from featurelab.modules import data, nets, theory
from featurelab.pipelines.engine.experiment.catalogue import registry
from featurelab.pipelines.engine.verdict.check import MemoryRecorder
from featurelab.pipelines.icl_scale.parity import parity_noise
from featurelab.pipelines.icl_scale.regression import prompts


def recorded(name, **changes):
    figure, recorder = registry.find(f"icl_scale/{name}"), MemoryRecorder()
    figure.run_trial(figure.laptop.but(**changes), recorder)
    return recorder


def test_errors_of_ranks_are_those_of_the_network_on_whole_prompts():
    config = registry.find("icl_scale/scale_gap").laptop.but(prompts=10_000, dim=5, strong=2, shown=6, length=20)
    values, w = prompts.spectrum(config), prompts.strong_task(config)
    found = prompts.drawn_errors(config, w, 6, 0.5, "prompts").mean(0)
    chance = data.stream(7, "whole")
    X = torch.from_numpy(chance.standard_normal((10_000, 7, 5))) * values.sqrt()
    y = X @ w + 0.5**0.5 * torch.from_numpy(chance.standard_normal((10_000, 7)))
    E = torch.cat([X.mT, y[:, None]], 1)
    E[:, -1, -1] = 0
    for rank in (1, 2, 5):
        net = nets.whole_attention_of_product(theory.icl_scale.optimal_product(torch.diag(values), 20, rank))
        with torch.no_grad():
            errors = (net(E)[:, 0] - X[:, -1] @ w) ** 2
        assert abs(errors.mean() - found[rank]) < 5 * errors.std() / 100


def test_wrong_forms_stand_for_the_theorem_under_their_controls():
    plain = recorded("label_noise", prompts=2000, width=16).curves
    for control in ("lower_power", "swapped_lengths"):
        wrong = recorded("label_noise", prompts=2000, width=16, control=control).curves
        assert wrong["z"] == plain[f"z/{control}"]
        assert wrong["error/drawn"] == plain["error/drawn"]


def test_a_flat_spectrum_has_no_best_rank_between_its_ends():
    for shown, noise in ((8, 0.0), (64, 1.0), (256, 16.0)):
        curves = recorded("best_rank", prompts=3000, shown=shown, noise=noise, control="flat_spectrum").curves
        assert next(iter(curves["best_rank"].values())) in (0, 16)
        assert next(iter(curves["trace"].values())) == pytest.approx(16)


def test_examples_needed_are_interpolated_along_the_logarithm():
    class Runs:
        def curve(self, *_, **__):
            import pandas as pd

            return pd.Series([0.6, 0.7, 0.9], index=[16, 64, 256])

    assert parity_noise.needed(Runs(), (1, 3), "small") == pytest.approx(128)
