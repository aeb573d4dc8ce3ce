"""Proposition B.1 and lemma 3.14. A few neurons of the first step, trained alone, learn what the network learns.

After the first step we keep one of 400 neurons for each cluster. The proposition says that some such neurons, trained
alone, reach the network's loss in the same time, and need not exist before the step. Its proof takes, from the cone
around a cluster's mean, neurons whose *length* also fits the explicit network (B.34). Our *ticket* has the neuron whose
threshold is nearest to half of the way to the mean. We compare it with

- the best aligned neuron of each cluster, of any length: with a small head |a_i| it is too short to fire at all;
- a random neuron of each cone that fires at the mean, to tell alignment from coverage of all clusters;
- three random subnetworks of the same size, and the four least aligned neurons;
- the ticket's neurons as they were before the step, with trained heads.

At desktop scale two handwritten digits, each 0 or 1, stand side by side, and the label is their XOR: four clusters
with the means of the paper's XOR, but with the variety of real handwriting in place of Gaussian noise.
"""

from typing import Literal

from featurelab.pipelines import (
    CATEGORIES, Experiment, Field, Recorder, above, at_least, at_most, band, below, between, data, fit, learners,
    legend_below, measures, nets, probes, torch,
)
from featurelab.pipelines.gradient_features.mixture_learning import SWEEP
from featurelab.pipelines.gradient_features.training import (
    PIXELS, FeatureConfig, build, cost, first_batch, first_rate, initial,
)

SUBNETS = {
    "full": "all 400 neurons",
    "ticket": "ticket: aligned, of the length in the proof",
    "aligned": "best aligned, of any length",
    "cone": "a random one that fires in each cone",
    "random_1": "random",
    "random_2": "random",
    "random_3": "random",
    "least": "least aligned",
    "initial": "ticket's neurons before the step",
}


class TicketConfig(FeatureConfig):
    subnet: Literal["full", "ticket", "aligned", "cone", "random_1", "random_2", "random_3", "least", "initial"] = (
        Field("full", description="neurons kept after the first step")
    )
    gamma: float = Field(0.2, gt=0, lt=1, description="width of the cone around each cluster mean")


PRESET = TicketConfig(dim=50, snr=4.0, n_train=2000, width=400, measure_every=10)

figure = Experiment(
    name="gradient_features/lottery", figures=("Prop. B.1", "Lemma 3.14", "Sec. B.3.2"),
    title="Four of 400 neurons after the first step, trained alone",
    caption="XOR of Gaussian clusters, or on a desktop of two digits side by side. Lines are means over seeds, bands "
    "their range.", laptop=PRESET, paper=PRESET.but(dim=200, n_train=16_000, n_test=20_000, width=2000, steps=3000),
    desktop=PRESET.but(problem="pairs", dim=PIXELS, n_train=4000, n_test=960), desktop_minutes=1.5,
    desktop_grid={"subnet": list(SUBNETS), "seed": range(3)},
    reduced="4,000 pairs of MNIST's digits 0 and 1 in place of 16,000 Gaussian samples, 400 neurons in place of 2,000, "
    "300 steps in place of 3,000", grid={"subnet": list(SUBNETS), "seed": [0, 1, 2, 3, 4, 5]}, sweep_axes=SWEEP,
    metric="accuracy/test", mode="max", minutes=0.4,
    small={"n_train": 80, "n_test": 40, "dim": 8, "width": 40, "batch_size": 40, "steps": 9, "measure_every": 4},
)
figure.cost(cost)


@figure.trial
def run(config: TicketConfig, recorder: Recorder) -> None:
    task, directions, unit = build(config)
    net = initial(config, unit)
    batch = first_batch(config, task)
    start = net.hidden.weight.detach().clone(), net.head.weight.detach()[0].clone()
    learners.take_first_step(net, batch, learners.hinge, lr=first_rate(config, net, batch, unit), erase=config.erase)
    W, a, b = net.hidden.weight.detach(), net.head.weight.detach()[0], net.thresholds
    aligned = measures.direction_cosines(W, directions)
    before = measures.direction_cosines(start[0], directions).abs().max().item()
    recorder.log({"cosine/before": before, "cosine/median": aligned.abs().amax(1).median().item()}, step=0)
    means = task.means if isinstance(task, data.PicturePairs) else config.snr * directions
    rows = chosen(config, aligned, (W @ means.to(W).T) / b[:, None].abs(), b > 0, recorder)
    share = config.hidden_share
    if config.subnet == "initial":
        (W, a), share = start, 0.0
    part = nets.thresholded_net(W[rows], a[rows], b[rows], config.dtype)
    optimizer = learners.adam_by_layer(config.lr, {"hidden": share, "head": 1.0}, weight_decay=config.weight_decay)
    learner = learners.Supervised(part, loss=config.loss, optimizer=optimizer)
    parts = {"train": task.train, "test": task.test}
    watching = [probes.LossProbe(parts, config.measure_every)]
    fit(learner, task, config, recorder, steps=config.steps - 1, probes=watching)


def chosen(config: TicketConfig, aligned, reach, positive, recorder: Recorder):
    """Choose the neurons to keep; `reach` is w.mu_j / |b|, above 1 where a neuron of positive threshold fires at mu_j.

    Where no neuron of a cone fires, choose among all neurons with a positive threshold.
    """
    chance = data.stream(config.streams.order, f"subnet {config.subnet}")
    count = aligned.shape[1]
    inside = (aligned > 1 - config.gamma) & positive[:, None]
    firing = inside & (reach > 1)
    recorder.log({"cone/neurons": inside.sum(0).min().item(), "cone/firing": firing.sum(0).min().item()}, step=0)
    if config.subnet == "full":
        return torch.arange(len(aligned))
    if config.subnet.startswith("random"):
        return torch.from_numpy(chance.permutation(len(aligned))[:count])
    if config.subnet == "least":
        return aligned.abs().amax(1).argsort(stable=True)[:count]
    if config.subnet == "aligned":
        return torch.where(positive[:, None], aligned, -2.0).argmax(0)
    allowed = torch.where(firing.any(0), firing, positive[:, None])
    if config.subnet == "cone":
        rows = [column.nonzero()[:, 0] for column in allowed.T]
        return torch.stack([row[int(chance.integers(len(row)))] for row in rows])
    off = torch.log(reach.clamp(min=1e-9) / 2).abs()  # from a threshold half of the way to the mean
    return torch.where(allowed, off, torch.inf).argmin(0)


def accuracy(runs, subnet):
    return runs.final("accuracy/test", subnet=subnet)


@figure.claim("c21_ticket_learns_what_the_network_learns", says="the ticket, trained alone, learns what the whole "
    "network learns (test accuracy, and difference from the network's)", paper="same guarantee", within=(-1, 1),
    expect={"ticket": at_least(0.9), "difference": at_least(-0.03)},
    where="Prop. B.1; size of the ticket chosen after the fact")
def ticket(runs):
    return {"ticket": accuracy(runs, "ticket"), "difference": accuracy(runs, "ticket") - accuracy(runs, "full")}


@figure.claim("c21b_alignment_alone_is_no_ticket",
    says="the best aligned neurons, of any length, learn less than the whole network (median of the differences in "
    "test accuracy)", origin="ours", where="Eq. B.34", about="median", within=(-1, 1), expect=at_most(-0.03))
def aligned_alone(runs):
    return accuracy(runs, "aligned") - accuracy(runs, "full")


@figure.claim("c21c_no_feature_before_the_step",
    says="before the step, no neuron is aligned with a cluster mean (largest |cos|)",
    paper="may not exist at initialization", where="Section B.3.2", kind="identity", expect=below(0.9))
def none_before(runs):
    return runs.final("cosine/before", subnet="full")


@figure.claim("c21d_coverage_and_not_alignment", says="random neurons that fire, one in the cone of each cluster, "
    "learn as much as the ticket (test accuracy, and the ticket's less theirs)", origin="ours", where="Section B.3.2",
    within=(-1, 1), expect={"random in cones": at_least(0.9), "difference": between(-0.03, 0.03)})
def coverage(runs):
    random = accuracy(runs, "cone")
    return {"random in cones": random, "difference": accuracy(runs, "ticket") - random}


@figure.claim("c21e_random_subnets_do_not",
    says="random subnetworks of the ticket's size learn less than the ticket (test hinge loss of the best of three "
    "less the ticket's)", origin="ours", where="Section B.3.2", expect=above(0))
def random_subnets(runs):
    random = [runs.final("loss/test", subnet=name) for name in SUBNETS if name.startswith("random")]
    return min(random) - runs.final("loss/test", subnet="ticket")


@figure.claim("c21f_the_ticket_is_not_there_before",
    says="the ticket's neurons as they were before the step learn little (test accuracy with trained heads)",
    paper="may not exist at initialization", where="Section B.3.2; bound set after the fact", within=(0, 1),
    expect=at_most(0.65))
def before(runs):
    return accuracy(runs, "initial")


@figure.claim("c21g_least_aligned_neurons_do_not",
    says="the four least aligned neurons learn little in at least three of four runs (test accuracy)", origin="ours",
    where="Section B.3.2; bound set after the fact", about="share", least=0.75, within=(0, 1), expect=at_most(0.6))
def least(runs):
    return accuracy(runs, "least")


@figure.draw(cols=2, size=(10.5, 3.8))
def panels(runs, axes):
    names = [name for name in SUBNETS if name not in ("random_2", "random_3")]
    for axis, (metric, label) in zip(axes[0], {"accuracy": "test accuracy", "loss": "test hinge loss"}.items(),
            strict=True):
        for name, colour in zip(names, [*CATEGORIES, "#222222"], strict=True):
            band(axis, runs.curves(f"{metric}/test", subnet=name), color=colour, label=SUBNETS[name], shade=0.06)
        axis.set(xlabel="step after the first", ylabel=label)
    axes[0, 1].set(ylim=(0, 1.5))
    legend_below([axes[0, 0]], 3)
