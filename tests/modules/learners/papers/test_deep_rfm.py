"""Deep RFM and its linearisation as fits of a trainer whose epochs are layers."""

import logging
import warnings
from functools import partial

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.loggers.logger import DummyLogger

from featurelab.modules import data, learners, measures, nets, theory

warnings.filterwarnings("ignore", module="pytorch_lightning")
logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)


class MemoryRecorder(DummyLogger):
    def __init__(self):
        super().__init__()
        self.values = {}

    def log_metrics(self, metrics, step=None):
        for name, value in metrics.items():
            self.values.setdefault(name, {})[step] = value


def features(kind, width, layer, dim):
    return nets.RandomFeatures(kind, dim, width, seed=10 * layer)


def mixture(**options):
    return data.ClassMixture(4, 10, 12, 2.0, n_test=40, targets="signs", seed=0, **options)


def made(depth, task=None, learner=None, ckpt_path=None, kind="relu", **options):
    learner = learner or learners.DeepRFM(measures.LaplaceKernel(2.0), partial(features, kind, 24), **options)
    kept = MemoryRecorder()
    trainer = pl.Trainer(
        max_epochs=depth,
        logger=kept,
        accelerator="cpu",
        precision="64-true",
        limit_val_batches=0,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(learner, datamodule=task or mixture(), ckpt_path=ckpt_path)
    return learner, kept.values, trainer


def step_by_step(depth, x, y, power=0.5):
    """The algorithm as written, with matrix inverses and autograd."""
    L, curve = 2.0, []
    for layer in range(1, depth + 1):
        x = x / torch.linalg.norm(x, dim=1, keepdim=True).clamp(min=1e-300)
        r = torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist")
        alpha = torch.linalg.inv(torch.exp(-r / L)) @ y
        M = torch.zeros(x.shape[1], x.shape[1], dtype=x.dtype)
        for a in range(len(x)):
            others = torch.arange(len(x)) != a
            difference = x[a] - x[others]
            slope = -torch.exp(-r[a, others] / L) / (L * r[a, others])
            J = torch.einsum("j,jd,jc->dc", slope, difference, alpha[others])
            M += J @ J.T
        values, vectors = torch.linalg.eigh(M / M.max())
        x = x @ (vectors * values.clamp(min=0) ** power) @ vectors.T
        curve.append(measures.nc1(measures.class_moments(x, y.argmax(1))).item())
        x = features("relu", 24, layer, x.shape[1])(x)
    return curve


@pytest.fixture(scope="module")
def four_layers():
    return made(4)


def test_layers_are_those_of_the_algorithm_written_out(four_layers):
    _, values, _ = four_layers
    expected = step_by_step(4, *mixture().train)
    assert list(values["nc1/projected"]) == [1, 2, 3, 4]
    assert list(values["nc1/projected"].values()) == pytest.approx(expected, rel=1e-8)


def test_the_predictor_interpolates_and_classifies_new_points(four_layers):
    learner, values, _ = four_layers
    x, y = mixture().train
    assert torch.allclose(learner(x), y, atol=1e-8)
    assert torch.allclose(learner(x[3:5]), y[3:5], atol=1e-8)
    assert values["accuracy/train"] == {4: 1.0}
    assert values["accuracy/test"][4] >= 0.8
    test_x, test_y = mixture().test
    assert values["loss/test"][4] == pytest.approx((learner(test_x) - test_y).square().mean().item())
    assert max(values["krr_residual/layer"].values()) < 1e-10
    assert set(values["krr_cholesky/layer"].values()) == {1.0}


def test_layers_do_not_depend_on_how_many_follow_nor_on_what_is_measured(four_layers):
    _, values, _ = four_layers
    seen = []

    def watch(layer, stages, labels):
        torch.rand(3)
        seen.append({name: tuple(stage.shape) for name, stage in stages.items()})
        return {"nc1/projected": measures.nc1(measures.class_moments(stages["projected"], labels)).item()}

    _, fewer, _ = made(2, watch=watch)
    assert fewer["nc1/projected"] == {layer: values["nc1/projected"][layer] for layer in (1, 2)}
    assert seen[0] == {"input": (40, 12), "projected": (40, 12), "features": (40, 24)}


def test_small_blocks_give_the_same_layers(four_layers):
    _, values, _ = four_layers
    _, blocked, _ = made(3, block_bytes=1)
    for layer in (1, 2, 3):
        assert blocked["nc1/projected"][layer] == pytest.approx(values["nc1/projected"][layer], rel=1e-8)


def test_a_fit_that_goes_on_from_a_checkpoint_is_the_one_that_was_not_interrupted(four_layers, tmp_path):
    whole, values, _ = four_layers
    _, _, trainer = made(2)
    trainer.save_checkpoint(tmp_path / "two.ckpt")
    fresh = learners.DeepRFM(measures.LaplaceKernel(2.0), partial(features, "relu", 24))
    resumed, later, _ = made(4, learner=fresh, ckpt_path=tmp_path / "two.ckpt")
    assert list(later["nc1/projected"]) == [3, 4]
    assert later["nc1/projected"][4] == pytest.approx(values["nc1/projected"][4], rel=1e-9)
    x = mixture().test[0]
    assert torch.allclose(resumed(x), whole(x), atol=1e-8)


def test_without_the_agop_data_pass_through_unchanged():
    _, values, _ = made(3, power=0.0)
    assert values["nc1/projected"] == values["nc1/input"]
    assert "participation_ratio/agop" not in values
    assert values["accuracy/train"] == {3: 1.0}


def test_the_scale_of_the_agop_matters_to_the_cosine_alone():
    relu = [made(2, agop_scale=scale)[1]["nc1/projected"][2] for scale in ("max", "mean", "sum")]
    assert relu == pytest.approx([relu[0]] * 3, rel=1e-8)
    cos = [made(2, kind="cos", agop_scale=scale)[1]["nc1/projected"][2] for scale in ("max", "sum")]
    assert abs(cos[0] / cos[1] - 1) > 1e-3


def test_rows_of_zeros_stay_rows_of_zeros():
    task = mixture()
    task.train[0][0] = 0.0
    _, values, _ = made(2, task=task)
    assert set(values["nc1/features"]) == {1, 2}


def test_minibatches_are_refused():
    with pytest.raises(ValueError, match="whole training set"):
        made(1, task=mixture(batch_size=20))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [(lambda y: y + 0.1 * torch.rand_like(y), "rows .* must hold"), (lambda y: y[:, :1], "a column for each class")],
    ids=["continuous", "column"],
)
@pytest.mark.parametrize("linear", [False, True], ids=["DeepRFM", "LinearisedDeepRFM"])
def test_targets_that_mark_no_class_are_refused(change, complaint, linear):
    task = mixture()
    x, y = task.train
    task.train = x, change((y + 1) / 2)
    learner = learners.LinearisedDeepRFM(0.3, 1.0) if linear else None
    with pytest.raises(ValueError, match=complaint):
        made(1, task=task, learner=learner)


@pytest.mark.parametrize(("options", "named"), [({"power": -1.0}, "power"), ({"agop_scale": "trace"}, "agop_scale")])
def test_impossible_options_are_refused_by_name(options, named):
    with pytest.raises(ValueError, match=named):
        learners.DeepRFM(measures.LaplaceKernel(2.0), partial(features, "relu", 24), **options)


def test_a_predictor_that_is_not_there_yet_is_not_asked():
    with pytest.raises(ValueError, match="before the end of a fit"):
        learners.DeepRFM(measures.LaplaceKernel(2.0), partial(features, "relu", 24))(torch.zeros(2, 3))


def balanced(classes=3, n=5):
    return data.ClassMixture(classes, n, 2 * classes * n, 2.0, seed=0)


def test_linearised_layers_converge_at_the_rate_in_closed_form():
    _, values, _ = made(12, task=balanced(), learner=learners.LinearisedDeepRFM(0.3, 1.0))
    errors = values["gram_error"]
    assert errors[12] / errors[11] == pytest.approx(theory.deep_neural_collapse.collapse_rate(5, 0.3, 1.0), rel=0.01)


def test_linearised_layers_are_those_of_the_formula():
    task = balanced()
    _, values, _ = made(2, task=task, learner=learners.LinearisedDeepRFM(0.3, 1.0, kappa="printed"))
    x, Y = task.train
    eye, kappa = torch.eye(15, dtype=torch.float64), theory.deep_neural_collapse.kappa_printed(0.3, 1.0)
    A = x @ x.T
    A = A + max(0.0, 1.0 - torch.linalg.eigvalsh(A)[0].item()) * eye
    for layer in (1, 2):
        inverse = torch.linalg.inv(A + 0.3 * eye)
        G = A @ inverse @ Y @ Y.T @ inverse @ A / kappa
        assert values["gram_error"][layer] == pytest.approx(torch.linalg.matrix_norm(G - Y @ Y.T, 2).item(), rel=1e-9)
        within, between = measures.scatter_traces_from_gram(G, Y.argmax(1))
        assert values["nc1/gram"][layer] == pytest.approx((within / between).item(), rel=1e-6)
        A = G + eye


def test_linearised_layers_go_on_from_a_checkpoint(tmp_path):
    _, whole, _ = made(5, task=balanced(), learner=learners.LinearisedDeepRFM(0.3, 1.0))
    _, _, trainer = made(3, task=balanced(), learner=learners.LinearisedDeepRFM(0.3, 1.0))
    trainer.save_checkpoint(tmp_path / "three.ckpt")
    fresh = learners.LinearisedDeepRFM(0.3, 1.0)
    _, later, _ = made(5, task=balanced(), learner=fresh, ckpt_path=tmp_path / "three.ckpt")
    assert later["gram_error"] == {layer: whole["gram_error"][layer] for layer in (4, 5)}


def test_the_linearisation_refuses_what_it_is_not_for():
    with pytest.raises(ValueError, match="kappa"):
        learners.LinearisedDeepRFM(0.3, 1.0, kappa="approximate")
    with pytest.raises(ValueError, match="negative"):
        learners.LinearisedDeepRFM(-0.3, 1.0)
    unequal = balanced()
    unequal.train[1][0] = unequal.train[1][-1]
    with pytest.raises(ValueError, match="equal sizes"):
        made(1, task=unequal, learner=learners.LinearisedDeepRFM(0.3, 1.0))


def test_without_updates_its_layers_are_those_without_an_agop():
    with learners.withheld_updates():
        _, withheld, _ = made(3)
    _, plain, _ = made(3, power=0)
    _, trained, _ = made(3)
    for metric in ("nc1/features", "nc2_cosines/features", "accuracy/test"):
        assert withheld[metric] == plain[metric]
    assert withheld["nc1/features"] != trained["nc1/features"]
