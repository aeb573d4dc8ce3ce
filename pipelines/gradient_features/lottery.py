"""Proposition B.1 and lemma 3.14. A few neurons of the first step, trained alone, learn what the network learns.

After the first step one neuron a cluster is kept of 400: the *ticket* keeps those whose weights are most aligned with
the cluster means. The proposition says that training it reaches the network's loss, and that it need not exist before
the step. Beside it: one neuron at random of those within a cone around each cluster mean (is it alignment, or that
every cluster has a neuron?), three random subnetworks of the same size, the four least aligned neurons, and the
ticket's neurons as they were before the step, of which only heads are trained.
"""

from typing import Literal

from featurelab.pipelines import (
    CATEGORIES,
    Experiment,
    Field,
    above,
    at_least,
    at_most,
    band,
    below,
    between,
    data,
    fit,
    learners,
    measures,
    nets,
    probes,
    torch,
)
from featurelab.pipelines.gradient_features.learning import SWEEP
from featurelab.pipelines.gradient_features.training import FeatureConfig, build, cost, first_batch, first_rate, initial

SUBNETS = {
    "full": "all 400 neurons",
    "ticket": "ticket: best aligned of each cluster",
    "cone": "one at random in the cone of each cluster",
    "random_1": "random",
    "random_2": "random",
    "random_3": "random",
    "least": "least aligned",
    "initial": "ticket's neurons before the step",
}


class TicketConfig(FeatureConfig):
    subnet: Literal["full", "ticket", "cone", "random_1", "random_2", "random_3", "least", "initial"] = Field(
        "full", description="which neurons are kept after the first step"
    )
    gamma: float = Field(0.2, gt=0, lt=1, description="width of the cone around each cluster mean")


PRESET = TicketConfig(dim=50, snr=4.0, n_train=2000, width=400, measure_every=10)

figure = Experiment(
    name="gradient_features/lottery", figure="Prop. B.1",
    title="Four of 400 neurons after the first step, trained alone",
    caption="XOR of Gaussian clusters. Lines are means over seeds, bands their range.",
    laptop=PRESET, paper=PRESET.but(dim=200, n_train=16_000, n_test=20_000, width=2000, steps=3000),
    grid={"subnet": list(SUBNETS), "seed": [0, 1, 2, 3, 4, 5]}, sweep_axes=SWEEP,
    metric="accuracy/test", mode="max", minutes=0.6,
    small={"n_train": 80, "n_test": 40, "dim": 8, "width": 40, "batch_size": 40, "steps": 9, "measure_every": 4,
        "seed": [0, 1, 2]},
)  # fmt: skip
figure.cost(cost)


@figure.trial
def run(config, recorder):
    task, directions, unit = build(config)
    net = initial(config, unit)
    batch = first_batch(config, task)
    start = net.hidden.weight.detach().clone(), net.head.weight.detach()[0].clone()
    learners.take_first_step(net, batch, learners.hinge, lr=first_rate(config, net, batch, unit), erase=config.erase)
    W, a, b = net.hidden.weight.detach(), net.head.weight.detach()[0], net.thresholds
    aligned = measures.direction_cosines(W, directions)
    before = measures.direction_cosines(start[0], directions).abs().max().item()
    recorder.log({"cosine/before": before, "cosine/median": aligned.abs().amax(1).median().item()}, step=0)
    kept = chosen(config, aligned, b, recorder)
    share = config.hidden_share
    if config.subnet == "initial":
        (W, a), share = start, 0.0
    part = nets.thresholded(W[kept], a[kept], b[kept], config.dtype)
    optimizer = learners.adam_by_layer(config.lr, {"hidden": share, "head": 1.0}, weight_decay=config.weight_decay)
    learner = learners.Supervised(part, loss=config.loss, optimizer=optimizer)
    parts = {"train": task.train, "test": task.test}
    watching = [probes.LossProbe(parts, config.measure_every)]
    fit(learner, task, config, recorder, steps=config.steps - 1, probes=watching)


def chosen(config, aligned, thresholds, recorder):
    """The neurons that are kept. Of a cone without neurons, one of all with a positive threshold is."""
    chance = data.stream(config.streams.order, f"subnet {config.subnet}")
    fires = thresholds > 0
    inside = (aligned > 1 - config.gamma) & fires[:, None]
    recorder.log({"cone/neurons": inside.sum(0).min().item()}, step=0)
    if config.subnet == "full":
        return torch.arange(len(aligned))
    if config.subnet.startswith("random"):
        return torch.from_numpy(chance.permutation(len(aligned))[: aligned.shape[1]])
    if config.subnet == "least":
        return aligned.abs().amax(1).argsort(stable=True)[: aligned.shape[1]]
    if config.subnet == "cone":
        rows = [column.nonzero()[:, 0] if column.any() else fires.nonzero()[:, 0] for column in inside.T]
        return torch.stack([row[int(chance.integers(len(row)))] for row in rows])
    return torch.where(fires[:, None], aligned, -2.0).argmax(0)


def accuracy(runs, subnet):
    return runs.final("accuracy/test", subnet=subnet)


def random_ones(runs, metric):
    return [runs.final(metric, subnet=name) for name in SUBNETS if name.startswith("random")]


@figure.claim("c21_ticket_learns_what_the_network_learns",
    says="test accuracy of the ticket less that of the whole network", paper="same guarantee",
    expect=at_least(-0.03))  # fmt: skip
def ticket(runs):
    return accuracy(runs, "ticket") - accuracy(runs, "full")


@figure.claim("c21b_other_subnets_do_not",
    says="hinge loss of the best of three random subnets less the ticket's; accuracy of the least aligned and of the "
    "ticket's neurons before the step",
    paper="the ticket need not exist at the start", where="Section B.3.2",
    expect={"random": above(0), "least aligned": at_most(0.6), "before": at_most(0.65)})  # fmt: skip
def others(runs):
    return {
        "random": min(random_ones(runs, "loss/test")) - runs.final("loss/test", subnet="ticket"),
        "least aligned": accuracy(runs, "least"),
        "before": accuracy(runs, "initial"),
    }


@figure.claim("c21c_no_feature_before_the_step",
    says="no neuron is aligned with a cluster mean at the start (largest |cos| of all)",
    paper="may not exist at initialization", where="Section B.3.2", kind="identity", expect=below(0.9))  # fmt: skip
def none_before(runs):
    return runs.final("cosine/before", subnet="full")


@figure.claim("c21d_coverage_and_not_alignment",
    says="accuracy of the ticket less that of one random neuron in the cone of each cluster", origin="ours",
    where="Section B.3.2", expect=between(-0.03, 0.03))  # fmt: skip
def coverage(runs):
    return accuracy(runs, "ticket") - accuracy(runs, "cone")


@figure.draw(cols=2, size=(10.5, 3.8))
def panels(runs, axes):
    names = [name for name in SUBNETS if name not in ("random_2", "random_3")]
    for axis, (metric, label) in zip(
        axes[0], {"accuracy": "test accuracy", "loss": "test hinge loss"}.items(), strict=True
    ):
        for name, colour in zip(names, CATEGORIES, strict=True):
            band(axis, runs.curves(f"{metric}/test", subnet=name), color=colour, label=SUBNETS[name])
        axis.set(xlabel="step after the first", ylabel=label)
    axes[0, 1].set(ylim=(0, 1.5))
    axes[0, 0].figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
