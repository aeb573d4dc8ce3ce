"""Theorem 7.1. With l(t) = -t the contrastive loss is the PCA objective of the smoothed representation.

    E l(phi(x) . (phi(x+) - phi(x-))) = -E |phi_(z_R) - phi_0|^2,    phi_(z_R) = E[phi(x) | z_R],    phi_0 = E phi(x)

Inputs x = g(z) of finitely many z = (z_R, z_U) are enumerated, with random probabilities, so both sides are exact: for
a free table of vectors, a ReLU network and a linear map. For a linear map phi_(z_R) is phi of the mean input. The
objective is the variance of the conditional mean, not that of phi itself.
"""

from typing import Literal

from featurelab.pipelines import (
    CATEGORIES, Config, Cost, Experiment, Field, Recorder, at_least, at_most, choice, data, evaluate, learners,
    legend_beside, nets, np, theory, torch,
)

REPRESENTATIONS = {"table": "free table", "network": "ReLU network", "linear": "linear map"}


class PcaConfig(Config):
    precision: Literal["64-true"] = Field("64-true", description="the identity holds to rounding")
    representation: Literal["table", "network", "linear"] = Field("table", description="phi")
    invariant: int = Field(7, ge=2, description="values of z_R")
    spurious: int = Field(5, ge=2, description="values of z_U")
    dim: int = Field(6, ge=1, description="numbers in an input")
    width: int = Field(4, ge=1, description="numbers in a representation")


figure = Experiment(
    name="contrastive_tradeoff/pca_identity", trains=False, figures=("Thm. 7.1",),
    title="The linear contrastive loss and the PCA objective", caption="Dots are seeds.", laptop=PcaConfig(),
    paper=PcaConfig(invariant=20, spurious=12, dim=30, width=16),
    grid={"representation": list(REPRESENTATIONS), "seed": range(6)},
    sweep_axes={"width": choice(1, 4, 16), "dim": choice(3, 6, 12), "invariant": choice(3, 7, 14)}, metric="error/pca",
    minutes=0.1, small={"invariant": 3, "spurious": 2},
)


@figure.trial
def run(config: PcaConfig, recorder: Recorder) -> None:
    R, U = config.invariant, config.spurious
    chance = data.stream(config.streams.data, "inputs")
    x = torch.from_numpy(chance.standard_normal((R * U, config.dim)))
    probabilities = [torch.from_numpy(chance.dirichlet(np.full(n, 3.0))) for n in (R, U)]
    task = data.TensorData((x, torch.arange(R * U)), name="enumerated factors")
    seed = config.streams.init
    net = {"table": lambda: nets.SphericalTable(R * U, config.width, seed=seed),
        "network": lambda: nets.perceptron((config.dim, 32, config.width), seed=seed),
        "linear": lambda: nets.mlp(config.dim, 1, 0, outputs=config.width, seed=seed)}[config.representation]()

    def both_sides(net, x, index):
        p, q = (each.to(x.device) for each in probabilities)
        one = torch.ones_like(p[:1])
        with torch.no_grad():
            H = (net(index) if config.representation == "table" else net(x)).unflatten(0, (R, U))
            loss = theory.contrastive_tradeoff.contrastive_by_enumeration(H, p, q, "linear")
            pca = theory.contrastive_tradeoff.pca_objective(H, p, q)
            plain = theory.contrastive_tradeoff.pca_objective(H.reshape(R * U, 1, -1), (p[:, None] * q).flatten(),
                one)
            values = {"loss": loss, "pca": pca, "plain": plain}
            values |= {f"error/{name}": (value / loss - 1).abs() for name, value in (("pca", pca), ("plain", plain))}
            if config.representation != "table":
                mean = net((x.unflatten(0, (R, U)) * q[:, None]).sum(1))
                on_means = theory.contrastive_tradeoff.pca_objective(mean[:, None], p, one)
                values["error/on_means"] = (on_means / loss - 1).abs()
        return {name: value.item() for name, value in values.items()}

    evaluate(learners.Measurement(net, both_sides), task, config, recorder)


@figure.cost
def cost(config: PcaConfig) -> Cost:
    rows = config.invariant * config.spurious
    return Cost(rows * config.width, 4.0 * rows**2 * (config.width + config.spurious), 8.0 * rows**2 * config.spurious)


@figure.claim("c01_loss_is_the_pca_objective", kind="identity", paper="equivalent",
    says="The linear contrastive loss is the negative PCA objective for every representation (greatest relative "
    "difference)", expect=at_most(1e-10))
def same(runs):
    return max(runs.final("error/pca", representation=name) for name in REPRESENTATIONS)


@figure.claim("c01b_linear_representations", kind="identity", paper="equivalent",
    says="For a linear map, the contrastive loss is the objective of linear PCA on inputs averaged over z_U (relative "
    "difference)", expect=at_most(1e-10))
def linear(runs):
    return runs.final("error/on_means", representation="linear")


@figure.claim("c01c_not_of_the_representation_itself", kind="identity", origin="ours",
    says="The contrastive loss is neither the variance of phi itself nor, for a network, that of phi of the mean "
    "inputs (least relative differences)", expect={"plain": at_least(0.05), "network": at_least(0.01)})
def others(runs):
    return {"plain": min(runs.final("error/plain", representation=name) for name in REPRESENTATIONS),
        "network": runs.final("error/on_means", representation="network")}


@figure.draw(size=(7.5, 4))
def panel(runs, axes):
    axis = axes[0, 0]
    for (name, label), colour in zip(REPRESENTATIONS.items(), CATEGORIES, strict=False):
        some = runs.where(representation=name)
        losses = -some.finals("loss")
        axis.plot(losses, -some.finals("pca"), "o", color=colour, label=f"{label}: conditional mean")
        axis.plot(losses, -some.finals("plain"), "x", color=colour, label=f"{label}: φ itself")
    ends = axis.get_xlim()
    axis.axline((ends[0], ends[0]), slope=1, color="black", linestyle="-.", linewidth=1, label="equal")
    axis.set(xscale="log", yscale="log", xlabel="contrastive loss, negated", ylabel="variance")
    legend_beside(axis)
