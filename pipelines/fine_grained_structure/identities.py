"""Appendix B. Identities behind class distances, and distance ratios before training.

    D_ij = t_i + t_j + |mu_i - mu_j|^2,  t_c the scatter of class c    against the mean over all pairs of samples
    mean_ij D_ij = 2 tr Cov                                            for classes of equal size
    MSDR >= 1                                                          for any features
    MSDR = (1 + s2) n/(n - 1)                                          for inputs N(mu_c, I), mu_c ~ N(0, s2 I)
    MSDR = (1 - k(0))/(1 - k(s2/(1 + s2))) n/(n - 1)                   after a wide random ReLU layer

with k the arc-cosine kernel and n the samples of a cluster.
"""

from typing import Literal

from featurelab.pipelines import (
    CATEGORIES, Config, Cost, Experiment, Field, Recorder, at_least, at_most, bound_level, choice, data, evaluate,
    learners, legend_beside, measures, nets, theory, torch,
)
from featurelab.pipelines.fine_grained_structure.clusters import named


class IdentityConfig(Config):
    precision: Literal["64-true"] = Field("64-true", description="identities hold to rounding")
    n_train: int = Field(320, ge=16, description="samples, shared equally by the clusters")
    clusters: int = Field(8, ge=4, description="Gaussian clusters")
    labels: int = Field(4, ge=2, description="coarse labels: cluster c has the label c mod labels")
    dim: int = Field(1024, ge=2, description="input coordinates")
    width: int = Field(4096, ge=2, description="random ReLU units")
    separations: tuple[float, ...] = Field((0.25, 1.0, 4.0), min_length=1, description="variances s2 of the means")


EXACT = ["closed_form", "total_variance", "nc2_of_one_hot"]

figure = Experiment(
    name="fine_grained_structure/identities", trains=False, figures=("App. B",),
    title="Identities of class distances, and distance ratios before training",
    caption="Left: relative errors of exact identities. Right: MSDR of the input and of random ReLU features.",
    laptop=IdentityConfig(), paper=IdentityConfig(), grid={"seed": range(6)},
    sweep_axes={"dim": choice(256, 512, 1024, 4096), "width": choice(512, 1024, 2048, 4096)},
    metric="identity_error/closed_form", minutes=0.1, small={"n_train": 32, "dim": 12, "width": 24},
)


@figure.trial
def run(config: IdentityConfig, recorder: Recorder) -> None:
    groups = torch.arange(config.clusters) % config.labels
    means = data.spread_means(config.clusters, config.dim, config.separations, seed=config.streams.data)
    task = data.GaussianClusters(means, groups, config.n_train, seed=config.streams.data)
    net = nets.mlp(config.dim, config.width, 1, outputs=config.labels, seed=config.streams.init)

    def measure(net, x, y):
        values = exact(x[:, 0], task.clusters.to(x.device), groups)
        for s, name in enumerate(named(config.separations)):
            hidden = torch.relu(x[:, s] @ net.layers[0].weight.T)
            for where, features in (("input", x[:, s]), ("relu", hidden)):
                values[f"msdr_{where}/{name}"] = measures.msdr(distances(features, task.clusters), groups)
            values[f"msdr_null/{name}"] = measures.msdr_null(hidden, task.clusters, groups, seed=config.seed, draws=5)
        return values

    evaluate(learners.Measurement(net, measure), task, config, recorder)


def distances(features, classes):
    return measures.class_distances(measures.class_moments(features, classes))


def exact(x, classes, groups):
    """Return relative errors of exact identities, and the smallest ratio over random assignments to clusters."""
    D = distances(x, classes)
    parts = [x[classes == c] for c in classes.unique()]
    pairs = torch.stack([torch.cdist(a, b).square().mean() for a in parts for b in parts])
    variance = (x - x.mean(0)).square().sum() / len(x)
    random = [classes[torch.randperm(len(classes)).to(classes.device)] for _ in range(20)]
    one_hot = torch.eye(len(groups), dtype=x.dtype)[classes.cpu()]
    return {
        "identity_error/closed_form": ((D.flatten() - pairs).norm() / pairs.norm()).item(),
        "identity_error/total_variance": abs(D.mean() / (2 * variance) - 1).item(),
        "identity_error/nc2_of_one_hot": measures.nc2(measures.class_moments(one_hot, classes.cpu())).item(),
        "msdr_smallest": min(measures.msdr(distances(x, classes), groups) for classes in random),
    }


@figure.cost
def cost(config: IdentityConfig):
    weights = config.width * (config.dim + config.labels)
    copies = len(config.separations)
    flops = copies * config.n_train * (2.0 * weights + 20.0 * config.width)
    return Cost(weights, flops, 8.0 * (weights + copies * config.n_train * (config.dim + 2 * config.width)))


@figure.claim("c25_identities_hold", where="Section 4", paper="definitions",
    says="D is the mean over all pairs, the mean of D is twice the variance, and NC2 of one-hot rows is 0 (largest "
    "relative error)", kind="identity", expect=at_most(1e-10))
def identities(runs):
    return max(runs.final(f"identity_error/{name}") for name in EXACT)


@figure.claim("c25b_ratio_is_at_least_one", where="Appendix B", origin="ours",
    says="MSDR is at least 1 even without structure (smallest over twenty random assignments of samples to clusters)",
    kind="identity", expect=at_least(1))
def smallest(runs):
    return runs.final("msdr_smallest")


def ratios(runs, name):
    """Return a measured ratio and its closed form by s2."""
    form = {
        "input": theory.fine_grained_structure.mixture_msdr,
        "relu": theory.fine_grained_structure.relu_msdr,
        "null": lambda s2, n: n / (n - 1),
    }[name]
    size, values = runs.values("n_train")[0] // runs.values("clusters")[0], sorted(runs.values("separations")[0])
    return {s2: (runs.final(f"msdr_{name}/{s2:g}"), form(s2, size)) for s2 in values}


def deviation(runs, name):
    return max(abs(measured / form - 1) for measured, form in ratios(runs, name).values())


@figure.claim("c25c_ratio_of_the_input", origin="ours",
    says="MSDR of the input is (1 + s2) n/(n - 1) (largest relative deviation)", kind="identity", expect=at_most(0.05))
def raw(runs):
    return deviation(runs, "input")


@figure.claim("c25d_ratio_of_random_features", origin="ours",
    says="MSDR after a random ReLU layer is that of the arc-cosine kernel (largest relative deviation)",
    kind="identity", expect=at_most(0.05))
def relu(runs):
    return deviation(runs, "relu")


@figure.claim("c25e_null_level", origin="ours",
    says="MSDR of clusters permuted inside labels is n/(n - 1) (largest relative deviation)", kind="identity",
    expect=at_most(0.02))
def null(runs):
    return deviation(runs, "null")


@figure.draw(cols=2, size=(10, 3.4))
def panels(runs, axes):
    left, right = axes[0]
    errors = [max(runs.final(f"identity_error/{name}"), 1e-17) for name in EXACT]
    left.barh([name.replace("_", " ") for name in EXACT], errors, color=CATEGORIES[0])
    bound_level(left, 1e-10, "tolerance", vertical=True)
    left.set(xscale="log", xlabel="relative error")
    left.legend(loc="upper right", bbox_to_anchor=(1.0, -0.15))
    for name, colour in zip(("input", "relu", "null"), CATEGORIES, strict=False):
        values, (measured, form) = list(ratios(runs, name)), zip(*ratios(runs, name).values(), strict=True)
        right.plot(values, measured, "o", color=colour, label=name)
        right.plot(values, form, "--", color=colour, linewidth=1)
    right.set(xscale="log", xlabel="variance of the means, σ²", ylabel="MSDR (dashed: closed form)")
    right.set_xticks(values, [f"{s:g}" for s in values])
    right.minorticks_off()
    legend_beside(right)
