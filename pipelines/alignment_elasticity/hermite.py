"""Appendix H. Closed forms for Hermite polynomials of Gaussians with any mean and variance.

For a neuron w and x ~ N(mu, Sigma) the theory needs E He_n(w^T x), and for two neurons E[He_j(w^T x) He_k(u^T x)]. Both
are compared with quadrature, for Gaussians that the neurons of a two-layer network see under an anisotropic Sigma. The
printed product formula (Theorem H.5) is linear in the variances A and B, which is right for degrees up to 3 and wrong
from 4 on. The corrected one, with the covariance c, is

    sum over j - 2m = k - 2q = p of C(j, 2m) (2m - 1)!! (A - 1)^m C(k, 2q) (2q - 1)!! (B - 1)^q p! c^p
"""

import itertools
from typing import Literal

from featurelab.pipelines import (
    Config, Cost, Experiment, Field, Recorder, at_most, colors, data, evaluate, learners, nets, np, randint, theory,
    torch,
)


class HermiteConfig(Config):
    precision: Literal["64-true"] = Field("64-true", description="closed forms hold to rounding")
    dim: int = Field(12, ge=2, description="input coordinates")
    width: int = Field(8, ge=2, description="neurons; every two neighbours make a pair")
    degree: int = Field(6, ge=4, le=10, description="largest degree of the polynomials")
    nodes: int = Field(60, ge=20, description="quadrature nodes in each of two directions")


PRESET = HermiteConfig()

figure = Experiment(
    name="alignment_elasticity/hermite", trains=False, figures=("App. H", "Thm. H.5", "Cor. H.12"),
    title="Products of Hermite polynomials: printed and corrected closed forms",
    caption="Largest error over neurons and seeds, divided by 1 + |value by quadrature|.", laptop=PRESET, paper=PRESET,
    grid={"seed": range(6)}, sweep_axes={"width": randint(2, 17), "dim": randint(4, 33)},
    metric="hermite_error/corrected", minutes=0.1, small={"dim": 4, "width": 2, "nodes": 30},
)


@figure.trial
def run(config: HermiteConfig, recorder: Recorder) -> None:
    chance = data.stream(config.streams.data, "classes")
    scale = chance.uniform(0.3, 1.8, config.dim)  # standard deviations of the coordinates: Sigma
    mean = chance.standard_normal(config.dim) / config.dim**0.5
    law = torch.from_numpy(mean)[None], torch.from_numpy(scale)[None]
    task = data.TensorData(law, dtype=config.dtype, name="gaussian_class")
    net = nets.two_layer(config.dim, config.width, seed=config.streams.init, dtype=config.dtype)
    degrees = range(config.degree + 1)
    forms = {"corrected": theory.alignment_elasticity.hermite_product_expectation,
        "printed": theory.alignment_elasticity.printed_hermite_product}
    worst = {name: np.zeros((len(degrees), len(degrees))) for name in forms}

    def errors(net, mean, scale):
        neurons = net.hidden.weight.detach()
        means, spread = (neurons @ mean[0]).tolist(), neurons * scale[0]
        variances = spread.square().sum(1).tolist()
        covariances = (spread * spread.roll(1, 0)).sum(1).tolist()
        expectation = max(
            error(
                theory.alignment_elasticity.hermite_expectation(n, m, v), quadrature(n, 0, v, 1.0, 0.0, config.nodes, m)
            )
            for n in degrees
            for m, v in zip(means, variances, strict=True)
        )
        for i, c in enumerate(covariances):
            A, B = variances[i], variances[i - 1]
            for j, k in itertools.product(degrees, repeat=2):
                exact = quadrature(j, k, A, B, c, config.nodes)
                for name, form in forms.items():
                    worst[name][j, k] = np.maximum(worst[name][j, k], error(form(j, k, A, B, c), exact))
        printed = worst["printed"]
        return {"hermite_error/expectation": float(expectation),
            "hermite_error/corrected": float(worst["corrected"].max()),
            "hermite_error/printed_low": float(printed[:4, :4].max()), "hermite_error/printed_40": float(printed[4, 0]),
            "hermite_error/printed_44": float(printed[4, 4])}

    evaluate(learners.Measurement(net, errors), task, config, recorder)
    recorder.array("errors", **worst)


def quadrature(j, k, A, B, c, nodes, mean=0.0):
    """E[He_j(Z_1) He_k(Z_2)] by Gauss-Hermite quadrature, Z_1 with this mean."""
    z, w = theory.alignment_elasticity.gauss_hermite(nodes)
    first = A**0.5 * z[:, None] + mean
    second = c / A**0.5 * z[:, None] + (B - c**2 / A) ** 0.5 * z[None, :]
    values = theory.alignment_elasticity.hermite_polynomial(j, first) * theory.alignment_elasticity.hermite_polynomial(
        k, second
    )
    return (w[:, None] * w[None, :] * values).sum().item()


def error(value, exact):
    return abs(value - exact) / (1 + abs(exact))


@figure.cost
def cost(config: HermiteConfig):
    pairs = config.width * (config.degree + 1) ** 2
    return Cost(config.dim * config.width, 20.0 * pairs * config.nodes**2, 80.0 * config.nodes**2)


@figure.claim("c22_corrected_product",
    says="the corrected form of E[He_j He_k], and E He_n, equal quadrature up to degree 6 (largest relative errors)",
    origin="corrected", where="Thm. H.5, Cor. H.12", kind="identity",
    expect={"product": at_most(1e-8), "expectation": at_most(1e-8)})
def corrected(runs):
    return {"product": runs.final("hermite_error/corrected"), "expectation": runs.final("hermite_error/expectation")}


@figure.claim("c22_printed_product_low_degrees",
    says="the printed form of E[He_j He_k] equals quadrature for degrees up to 3 (largest relative error)",
    paper="exact", where="Thm. H.5", kind="identity", expect=at_most(1e-8))
def low_degrees(runs):
    return runs.final("hermite_error/printed_low")


@figure.claim("c22_printed_product",
    says="the printed form of E[He_j He_k] equals quadrature for the degrees (4, 0) and (4, 4) (relative errors)",
    paper="exact", where="Thm. H.5", kind="identity", expect={"(4, 0)": at_most(1e-8), "(4, 4)": at_most(1e-8)})
def printed(runs):
    return {"(4, 0)": runs.final("hermite_error/printed_40"), "(4, 4)": runs.final("hermite_error/printed_44")}


@figure.draw(cols=2, size=(9, 4))
def panels(runs, axes):
    errors = runs.arrays("errors")
    for axis, name in zip(axes[0], ("corrected", "printed"), strict=True):
        worst = np.max([of_seed[name] for of_seed in errors], axis=0)
        image = axis.imshow(worst.clip(min=1e-16), norm=colors.LogNorm(1e-16, 10), cmap="magma", origin="lower")
        axis.set(title=f"{name} form", xlabel="degree k", ylabel="degree j")
        axis.grid(visible=False)
    axes[0, 1].figure.colorbar(image, ax=axes[0].tolist(), label="relative error")
