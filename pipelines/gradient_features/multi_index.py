"""Lemma B.68. One step finds the subspace of a multiple-index model.

The target y = x_1 x_2, x ~ N(0, I), is a polynomial of degree 2 in r = 2 directions with the Hessian H. We first
subtract the mean and the best linear fit from the labels (algorithm 7). For b = 0 the gradient of the law is

    G(w, 0) = (H u - (u'Hu) u/2) / sqrt(2 pi),   u = w/|w|.

After the step we scale w = a G to a median length of 1, draw new thresholds from N(0, 1), and fit a by ridge regression
in place of gradient descent. We compare with as many random features (w before the step), and with ridge regression on
all products of two coordinates, which uses that the target is quadratic.
"""

from typing import Literal

from featurelab.pipelines import (
    CATEGORIES, Config, Cost, Experiment, Field, Recorder, above, at_least, at_most, band, below, between, choice, data,
    evaluate, learners, loguniform, measures, nets, np, theory, torch,
)


class IndexConfig(Config):
    control: Literal["none", "permuted_labels"] = Field("none", description="what is destroyed")
    precision: Literal["64-true"] = Field("64-true", description="ridge regressions are solved by normal equations")
    n_train: int = Field(20_000, ge=2, description="samples")
    n_test: int = Field(4000, ge=1, description="test samples")
    dim: int = Field(30, ge=4, description="input coordinates d")
    rank: int = Field(2, ge=2, description="coordinates that enter the target")
    width: int = Field(300, ge=1, description="neurons")
    ridge: float = Field(1e-4, gt=0, description="ridge, in units of the mean square of a feature")


SIZES = [5000, 20_000, 80_000]
PRESET = IndexConfig()

figure = Experiment(
    name="gradient_features/multi_index", trains=False, figures=("Lemma B.68", "Algorithm 7"),
    title="One gradient step on a product of two coordinates", caption="Means over seeds, bands their range.",
    laptop=PRESET, paper=PRESET.but(dim=100, width=2000, n_train=1_000_000), grid={"n_train": SIZES, "seed": range(6)},
    paper_grid={"n_train": [50_000, 200_000, 1_000_000], "seed": [0, 1, 2]},
    sweep_axes={"width": choice(100, 300, 1000), "ridge": loguniform(1e-6, 1e-1), "dim": choice(15, 30, 60)},
    metric="loss/test/gradient", minutes=0.6, small={"n_train": [200, 400, 1600], "n_test": 100, "dim": 5, "width": 30},
)


@figure.trial
def run(config: IndexConfig, recorder: Recorder) -> None:
    c = config
    target = data.ChainMonomials(c.n_train, c.n_test, c.dim, c.rank, seed=c.streams.data, dtype=c.dtype)
    x, y = target.labelled
    offset, slope = y.mean(), (y * x).mean(0)
    task = data.TensorData((x, y - offset - (x @ slope)[:, None]), name="multi_index")  # the task permutes these labels
    test = target.test[0], target.test[1] - offset - (target.test[0] @ slope)[:, None]
    hessian = data.chain_hessian(c.dim, c.rank) / target.label_scale
    W, a = nets.random_neurons(c.dim, c.width, heads="signs", seed=c.streams.init)
    net = nets.thresholded_net(W / c.dim**0.5, a, torch.zeros(c.width), c.dtype)
    thresholds = torch.from_numpy(data.stream(c.streams.init, "thresholds").standard_normal(c.width))

    def measure(net, x, y):
        W, a = net.hidden.weight.detach(), net.head.weight.detach()[0]
        G = theory.gradient_features.simplified_gradient(x, y, W, net.thresholds)
        form = theory.gradient_features.quadratic_gradient(W, torch.from_numpy(hessian))
        plane = torch.eye(c.dim, dtype=x.dtype)[: c.rank]
        moved = a[:, None] * G / G.norm(dim=1).median()
        b, (z, t) = thresholds.to(x), (part.to(x) for part in test)

        def features(neurons):
            return lambda points: torch.relu(points @ neurons.T - b)

        losses = {
            "gradient": ridge_loss(features(moved), x, y, z, t, c.ridge),
            "random": ridge_loss(features(W), x, y, z, t, c.ridge),
            "products": ridge_loss(products, x, y, z, t, c.ridge),
        }
        return {f"loss/test/{name}": value for name, value in losses.items()} | {
            "energy/before": measures.subspace_energy(W, plane).median().item(),
            "energy/after": measures.subspace_energy(G, plane).median().item(),
            "gradient_error": (torch.linalg.norm(G - form) / torch.linalg.norm(form)).item(),
        }

    evaluate(learners.Measurement(net, measure), task, config, recorder)


def products(x):
    """Return 1, all coordinates, and all products of two coordinates."""
    i, j = torch.triu_indices(x.shape[1], x.shape[1])
    return torch.cat([torch.ones_like(x[:, :1]), x, x[:, i] * x[:, j]], 1)


def ridge_loss(features, x, y, z, t, ridge):
    """Return the mean squared test error of ridge regression on these features and a constant, in blocks of samples."""

    def with_one(points):
        phi = features(points)
        return torch.cat([phi, torch.ones_like(phi[:, :1])], 1)

    width = with_one(x[:1]).shape[1]
    gram, target = x.new_zeros(width, width), x.new_zeros(width, 1)
    for rows in torch.arange(len(x)).split(5000):
        phi = with_one(x[rows])
        gram += phi.T @ phi
        target += phi.T @ y[rows]
    beta = measures.kernel_regression(gram, target, ridge * gram.diagonal().mean().item()).coefficients
    return (with_one(z) @ beta - t).square().mean().item()


@figure.cost
def cost(config: IndexConfig):
    n, d, m = config.n_train, config.dim, config.width
    flops = n * m * (8.0 * d + 4 * m) + n * d**4 / 2
    return Cost(m * d, flops, 8.0 * (n * d + 5000 * d**2) + 2e8)


def sizes(runs):
    return sorted(runs.values("n_train"))


def largest(runs, metric):
    return runs.final(metric, n_train=sizes(runs)[-1])


@figure.claim("c12_one_step_finds_the_subspace", says="one step moves most of a neuron's energy into the target's "
    "plane from 20,000 samples on (median share of G's energy, and that of the initial w in units of r/d)",
    origin="ours", expect={"after": at_least(0.85), "before": at_most(1.2)})
def subspace(runs):
    after = min(runs.final("energy/after", n_train=n) for n in sizes(runs)[1:])
    return {"after": after, "before": largest(runs, "energy/before") * runs.values("dim")[0] / runs.values("rank")[0]}


@figure.claim("c12b_gradient_has_its_closed_form",
    says="the gradients of a sample approach their closed form as the error of a mean does, n^(-1/2) (log-log slope)",
    origin="ours", kind="identity", expect=between(-0.6, -0.4))
def closed(runs):
    errors = [runs.final("gradient_error", n_train=n) for n in sizes(runs)]
    return float(np.polyfit(np.log(sizes(runs)), np.log(errors), 1)[0])


@figure.claim("c13_features_of_one_step_fit_the_target", says="at 20,000 samples, ridge regression fits the target on "
    "features of one step, and not on as many random features (mean squared test errors; the target has variance 1)",
    paper="ε against 1", where="Theorem B.69", expect={"one step": at_most(0.05), "random": at_least(0.5)})
def fits(runs):
    n = sizes(runs)[1]
    return {name: runs.final(f"loss/test/{kind}", n_train=n) for name, kind in
            (("one step", "gradient"), ("random", "random"))}


@figure.claim("c13b_products_of_coordinates_do_better",
    says="at 20,000 samples, ridge regression on products of coordinates, which are fixed features too, has a lower "
    "test error than on features of one step (ratio)", origin="ours", where="Section 3.4", expect=below(1))
def products_fit(runs):
    n = sizes(runs)[1]
    return runs.final("loss/test/products", n_train=n) / runs.final("loss/test/gradient", n_train=n)


@figure.claim("c13c_more_samples_help",
    says="the test error on features of one step falls from 5,000 to 80,000 samples (difference)", paper="O(1/n)",
    expect=above(0))
def more(runs):
    return runs.final("loss/test/gradient", n_train=sizes(runs)[0]) - largest(runs, "loss/test/gradient")


@figure.draw(cols=3, size=(11, 3.3))
def panels(runs, axes):
    shown = [
        {"energy/before": "w, before", "energy/after": "G, after one step"},
        {"gradient_error": "|G$_n$ - G| / |G|"},
        {
            "loss/test/random": "random features",
            "loss/test/gradient": "one step",
            "loss/test/products": "products $x_ix_j$",
        },
    ]
    names = ["median energy in the target's plane", "relative error of gradients", "test error of ridge regression"]
    for axis, metrics, name in zip(axes[0], shown, names, strict=True):
        for (metric, label), colour in zip(metrics.items(), CATEGORIES, strict=False):
            rows = [np.maximum(runs.finals(metric, n_train=n), 1e-12) for n in sizes(runs)]
            band(axis, rows, sizes(runs), color=colour, label=label, marker="o")
        axis.set(xscale="log", xlabel="samples n", title=name)
        axis.set_xticks(sizes(runs), [f"{n:,}" for n in sizes(runs)])
        axis.minorticks_off()
    axes[0, 0].set(ylim=(0, 1.02), ylabel="share")
    axes[0, 1].set(yscale="log", ylabel="error")
    axes[0, 2].set(yscale="log", ylabel="mean squared error")
    for axis in axes[0]:
        axis.legend(loc="best")
