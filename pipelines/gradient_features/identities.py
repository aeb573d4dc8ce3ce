"""Lemmas B.70 to B.72. Exact identities of the first gradient and of the symmetric initialisation.

    grad_(w_i) L = l'(0) a_i G(w_i, b_i)        G(w, b) + G(-w, -b) = E[y x]        f = 0 at the start
    w_i = -w_(i+2m) after the step, and w_i = w_(i+m) where E[y x] = 0

Assumption 3.1 requires l(0) = 1, and remark 3.2 says that the logistic loss log(1 + exp(-z)) meets it, but that is
log 2 at 0.
"""

import math
from typing import Literal

from featurelab.pipelines import (
    CATEGORIES, Config, Cost, Experiment, Field, Recorder, at_most, bound_level, choice, data, evaluate, learners,
    measures, nets, theory, torch,
)


class IdentityConfig(Config):
    precision: Literal["64-true"] = Field("64-true", description="identities hold to rounding")
    n_train: int = Field(500, ge=4, description="samples")
    dim: int = Field(12, ge=2, description="input coordinates")
    width: int = Field(28, ge=4, multiple_of=4, description="neurons 4m")
    threshold: float = Field(0.5, ge=0, description="b of the first m neurons")


EXACT = ["zero_output", "hinge", "logistic", "opposite_pairs", "sum_rule", "symmetric_pairs", "cone", "scale"]
PRESET = IdentityConfig()

figure = Experiment(
    name="gradient_features/identities", trains=False, figures=("Lemma B.70", "Lemma B.71", "Lemma B.72"),
    title="Identities of the first gradient and of the symmetric initialisation",
    caption="Largest error over seeds, relative to the largest entry.", laptop=PRESET,
    paper=PRESET.but(n_train=5000, dim=100, width=400), grid={"seed": range(6)},
    sweep_axes={"dim": choice(6, 12, 24, 48), "width": choice(8, 28, 100)}, metric="identity_error/hinge", minutes=0.1,
    small={"n_train": 20, "dim": 4, "width": 8},
)


@figure.trial
def run(config: IdentityConfig, recorder: Recorder) -> None:
    task = data.LinearMargin(config.n_train, 0, config.dim, seed=config.streams.data)
    m = config.width // 4
    W, a = nets.random_neurons(config.dim, m, seed=config.streams.init)
    net = nets.symmetric_thresholded(W, a, torch.full((m,), config.threshold))

    def measure(net, x, y):
        values = {f"identity_error/{name}": error for name, error in exact(net, x, y, config.width // 4).items()}
        return values | {f"loss_at_zero/{name}": learners.loss(name)(net, (x, y)) for name in ("hinge", "logistic")}

    evaluate(learners.Measurement(net, measure), task, config, recorder)


def exact(net, x, y, m):
    """Return relative errors of the identities."""
    W, a, b = net.hidden.weight.detach(), net.head.weight.detach()[0], net.thresholds
    G = theory.gradient_features.simplified_gradient(x, y, W, b)
    largest = G.abs().max()
    both = torch.cat([x, -x]), torch.cat([y, y])  # E[y x] = 0
    errors = {"zero_output": net(x).abs().max() / net.features(x).abs().max()}
    for loss, slope in (("hinge", -1.0), ("logistic", -0.5)):
        gradient = slope_of(net, loss, (x, y))
        errors[loss] = (gradient - slope * a[:, None] * G).abs().max() / largest
    step, even = (slope_of(net, "hinge", batch) for batch in ((x, y), both))
    opposite = theory.gradient_features.simplified_gradient(x, y, -W, -b)
    scaled = theory.gradient_features.simplified_gradient(x, y, 3 * W, 3 * b)
    cosines = measures.direction_cosines(torch.cat([G, -2 * G]), torch.eye(G.shape[1]))
    errors |= {
        "opposite_pairs": (step[: 2 * m] + step[2 * m :]).abs().max() / largest,
        "symmetric_pairs": (even[:m] - even[m : 2 * m]).abs().max() / largest,
        "sum_rule": (G + opposite - (y * x).mean(0)).abs().max() / largest,
        "cone": (cosines[: len(G)] + cosines[len(G) :]).abs().max(),
        "scale": (scaled - G).abs().max() / largest,
    }
    return {name: error.item() for name, error in errors.items()}


def slope_of(net, loss, batch):
    with torch.enable_grad():
        return torch.autograd.grad(learners.loss(loss)(net, batch), net.hidden.weight)[0]


@figure.cost
def cost(config: IdentityConfig):
    n, d, m = config.n_train, config.dim, config.width
    return Cost(m * (d + 1), 40.0 * n * d * m, 8.0 * n * (d + 3 * m))


@figure.claim("c01_identities_hold", says="every identity of lemmas B.70 to B.72 holds to rounding (largest error)",
    paper="exact", kind="identity", expect=at_most(1e-10))
def identities(runs):
    return max(runs.final(f"identity_error/{name}") for name in EXACT)


@figure.claim("c01b_logistic_is_normalised",
    says="hinge and logistic loss are 1 where f = 0, as assumption 3.1 and remark 3.2 state (largest distance)",
    paper="ℓ(0) = 1", where="Assumption 3.1, remark 3.2", kind="identity", expect=at_most(1e-10))
def normalised(runs):
    return max(abs(runs.final(f"loss_at_zero/{name}") - 1) for name in ("hinge", "logistic"))


@figure.claim("c01c_logistic_at_zero",
    says="the hinge loss is 1 and the logistic loss is log 2 where f = 0 (largest distance)", where="Assumption 3.1",
    origin="corrected", kind="identity", expect=at_most(1e-10))
def at_zero(runs):
    return max(abs(runs.final("loss_at_zero/hinge") - 1), abs(runs.final("loss_at_zero/logistic") - math.log(2)))


@figure.draw(size=(7, 3.4))
def panel(runs, axes):
    axis = axes[0, 0]
    errors = [max(runs.finals(f"identity_error/{name}").max(), 1e-17) for name in EXACT]
    axis.barh([name.replace("_", " ") for name in EXACT], errors, color=CATEGORIES[0])
    bound_level(axis, 1e-10, "tolerance", vertical=True)
    axis.set(xscale="log", xlabel="error", xlim=(1e-17, 1e-8))
    axis.invert_yaxis()
    axis.legend(loc="lower right")
