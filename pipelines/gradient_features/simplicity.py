"""Section B.3.1. Networks learn the features of heavy clusters before those of light ones.

The framework explains simplicity bias: networks learn a smaller family of feature networks first. Here four clusters
with orthogonal means have the weights 0.4, 0.4, 0.1, 0.1. We follow test accuracy on the heavy and on the light pair,
in a network with its first step and in one with random features. Each pair has both labels. With equal weights neither
pair should lead.
"""

from typing import Literal

from featurelab.pipelines import (
    CATEGORIES, Experiment, Field, Recorder, above, at_least, band, between, data, fit, learners, loguniform, np,
    probes, theory, torch,
)
from featurelab.pipelines.gradient_features.mixture_learning import SWEEP
from featurelab.pipelines.gradient_features.training import (
    FeatureConfig, cost, first_batch, first_rate, initial, with_control,
)


class BiasConfig(FeatureConfig):
    method: Literal["full", "random"] = Field("full",  # type: ignore[assignment]
        description="the whole network, or only heads on its initial neurons")
    weights: Literal["uneven", "equal"] = Field("uneven", description="0.4, 0.4, 0.1, 0.1, or a quarter each")


PRESET = BiasConfig(problem="orthogonal", dim=60, snr=6.0, n_train=2000, lr=0.005, hidden_share=1.0, measure_every=5)
PARTS = {"uneven": (4, 4, 1, 1), "equal": (1, 1, 1, 1)}
FIRST = 5  # the earliest logged step after the first update
GAMMA = 0.2

figure = Experiment(
    name="gradient_features/simplicity", figures=("Sec. B.3.1",),
    title="Accuracy on heavy and light clusters during training",
    caption="Lines are means over seeds, bands their range. Heavy: the first two clusters, also at equal weights.",
    laptop=PRESET, paper=PRESET.but(dim=400, n_train=20_000, n_test=20_000, width=2000, steps=3000),
    grid={"weights": list(PARTS), "method": ["full", "random"], "seed": [0, 1, 2, 3, 4, 5]},
    sweep_axes=SWEEP | {"lr": loguniform(1e-4, 1e-1)}, metric="accuracy/test", mode="max", minutes=0.5,
    small={"n_train": 80, "n_test": 40, "dim": 8, "width": 40, "batch_size": 40, "steps": 9},
)
figure.cost(cost)


@figure.trial
def run(config: BiasConfig, recorder: Recorder) -> None:
    c = config
    means = data.orthogonal_means(4, c.dim, c.snr, seed=c.streams.data)
    which = torch.arange(4).repeat_interleave(torch.tensor(PARTS[c.weights]))
    labels = torch.tensor([1.0, -1.0, 1.0, -1.0], dtype=torch.float64)
    rounded = [n - n % len(which) for n in (c.n_train, c.n_test)]
    task = data.GaussianClusters(means[which], labels[which], *rounded, seed=c.streams.data, dtype=c.dtype,
        batch_size=c.batch_size, order_seed=c.streams.order)
    task = with_control(c, task)
    net = initial(c, 1.0)
    batch = first_batch(c, task)
    rate = first_rate(c, net, batch, 1.0) if c.method == "full" else None
    G = theory.gradient_features.simplified_gradient(batch[0], batch[1], net.hidden.weight.detach(), net.thresholds)
    hits = theory.gradient_features.hit_probability(G, means, gamma=GAMMA)
    recorder.log({"hit_probability/heavy": hits[:2].mean().item(), "hit_probability/light": hits[2:].mean().item()},
        step=0)
    net.hidden.weight.requires_grad_(c.method == "full")
    descent = learners.gd(c.lr, weight_decay=c.weight_decay)
    learner = learners.FirstStepThen(net, loss=c.loss, optimizer=descent, first_lr=rate, erase=c.erase,
        first_batch=batch)
    x, y = task.test
    heavy = which[task.test_clusters] < 2

    def by_weight(module, inputs):
        with torch.no_grad():
            right = (module(inputs) * y.to(inputs) > 0).double()[:, 0]
        chosen = heavy.to(right.device)
        return {"accuracy/heavy": right[chosen].mean().item(), "accuracy/light": right[~chosen].mean().item()}

    watching = [probes.LossProbe({"train": task.train, "test": task.test}, c.measure_every),
        probes.Measure(by_weight, c.measure_every, name="weights", inputs=x)]
    fit(learner, task, config, recorder, steps=c.steps, probes=watching)


def ahead(runs, method="full", weights="uneven"):
    """Return accuracy on heavy less that on light clusters at every logged step from FIRST on."""
    heavy, light = (runs.curve(f"accuracy/{name}", method=method, weights=weights) for name in ("heavy", "light"))
    return (heavy - light).loc[FIRST:]


@figure.claim("c22_heavy_clusters_come_first", says="the network learns heavy clusters before light ones (smallest "
    "lead in accuracy over steps, and gain on light clusters with time)", paper="simpler functions first",
    within=(-1, 1), expect={"heavy less light": at_least(0), "gain": above(0)})
def heavy_first(runs):
    light = runs.curve("accuracy/light", method="full", weights="uneven").loc[FIRST:]
    return {"heavy less light": float(ahead(runs).min()), "gain": float(light.iloc[-1] - light.iloc[0])}


@figure.claim("c22b_random_features_give_the_same_lead",
    says="random features give heavy clusters the same lead as the network does, within 0.03 (difference of the mean "
    "leads over steps)", origin="ours", about="equivalence", within=(-2, 2), expect=between(-0.03, 0.03))
def beyond_random(runs):
    return float(ahead(runs).mean() - ahead(runs, "random").mean())


@figure.claim("c22c_none_leads_at_equal_weights",
    says="at equal weights, neither pair of clusters leads (mean lead over steps)", origin="ours",
    about="equivalence", within=(-1, 1), expect=between(-0.03, 0.03))
def equal(runs):
    return float(ahead(runs, weights="equal").mean())


@figure.claim("c22d_gradients_hit_heavy_clusters", says="more gradients are within gamma = 0.2 of the mean of a heavy "
    "cluster than of a light one (difference of shares of neurons)", origin="ours", expect=at_least(0.1),
    within=(-1, 1), controls=["permuted_labels", "first_step_permuted", "same_moments"])
def hits(runs):
    heavy, light = (runs.final(f"hit_probability/{name}", method="full", weights="uneven")
        for name in ("heavy", "light"))
    return heavy - light


@figure.draw(cols=3, size=(12, 3.5))
def panels(runs, axes):
    shown = [("full", "uneven", "network, weights 0.4, 0.4, 0.1, 0.1"),
        ("random", "uneven", "random features, same weights"), ("full", "equal", "network, equal weights")]
    for axis, (method, weights, title) in zip(axes[0], shown, strict=True):
        for name, colour in zip(("heavy", "light"), CATEGORIES, strict=False):
            table = runs.curves(f"accuracy/{name}", method=method, weights=weights)
            band(axis, table.loc[FIRST:], color=colour, label=f"{name} clusters")
        axis.set(title=title, xlabel="step", ylabel="test accuracy", ylim=(0.4, 1.02), xscale="log")
        axis.set_xticks(np.array([5, 20, 100]), ["5", "20", "100"])
        axis.legend(loc="lower right")
