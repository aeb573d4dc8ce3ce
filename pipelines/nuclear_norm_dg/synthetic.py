"""Figures 6.2 and 6.3. With the nuclear norm a classifier uses the coordinate that is right in every domain.

A sample with label y is x = (y u_1, s y u_2), with u uniform in [0, 1]^2. The first coordinate always has the sign of
the label, the second one if s = 1: with probability 0.7 in domain and 0.3 out of it. Features A x, with A 2 x 2, and a
linear head make a decision w, and its slope t = w_2/w_1 determines the accuracy: for 0 <= t <= 1 it is 1 - 0.15 t in
domain and 1 - 0.35 t out of it. ERM minimises the logistic loss by gradient descent; ERM-NU adds the nuclear norm of
the features over the root of the batch size.

The paper gives neither steps nor initialisation and trains "until convergence". Its numbers are near those of single
seeds with a random, fixed head and early stopping, which is the first figure here. The second figure trains ten times
as long, the third one trains the head too.
"""

from typing import Literal

from featurelab.pipelines import (
    CATEGORIES, Cost, Experiment, Field, Recorder, TrainedConfig, above, at_least, at_most, between, choice, data, fit,
    learners, legend_beside, loguniform, measures, nets, np, paper_level, probes, theory,
)
from featurelab.pipelines.nuclear_norm_dg.printed import SYNTHETIC

IN, OUT = 0.7, 0.3  # share of samples whose second coordinate is right, in and out of domain
METHODS = {"erm": "ERM", "nuclear": "ERM-NU", "frobenius": "ERM, Frobenius norm"}


class SyntheticConfig(TrainedConfig):
    precision: Literal["64-true", "32-true"] = Field("64-true", description="Lightning precision")
    method: Literal["erm", "nuclear", "frobenius"] = Field("erm", description="norm added to the loss; erm: none")
    n_train: int = Field(500, ge=2, description="training samples")
    n_test: int = Field(20000, ge=1, description="test samples of each domain")
    strength: float = Field(0.1, ge=0, description="lambda: factor of the penalty")
    scaling: learners.Scaling = Field("per_root", description="power of the batch size that divides the penalty")
    head: Literal["fixed", "trained"] = Field("fixed", description="whether the linear head keeps its initial weights")
    init_scale: float = Field(1.0, gt=0, description="standard deviation of the entries of A")
    head_scale: float = Field(0.7, gt=0, description="standard deviation of the entries of the head")
    lr: float = Field(0.1, gt=0, description="learning rate")
    weight_decay: float = Field(0.0, ge=0, description="weight decay of all trained weights")
    steps: int = Field(1000, ge=1, description="steps of gradient descent on all samples")
    measure_every: int = Field(100, ge=1, description="steps between measurements")


early = Experiment(
    name="nuclear_norm_dg/synthetic", figures=("Fig. 6.2", "Fig. 6.3"),
    title="An invariant and an environmental coordinate, early in training",
    caption="Left, middle: samples out of domain, and the decision of each seed. Dashed: the paper's accuracies.",
    laptop=SyntheticConfig(), paper=SyntheticConfig(), grid={"method": list(METHODS), "seed": list(range(12))},
    sweep_axes={"lr": loguniform(1e-2, 1.0), "strength": loguniform(1e-3, 1.0), "weight_decay": loguniform(1e-6, 1e-1),
        "init_scale": choice(0.5, 1.0, 3.0), "n_train": choice(100, 500, 2000)}, metric="accuracy/ood", mode="max",
    minutes=0.3, headline=True, small={"n_train": 20, "n_test": 50, "steps": 6, "measure_every": 3},
)
late = early.variant(
    "synthetic_converged", figures=("Fig. 6.2", "Fig. 6.3"), part="converged",
    title="An invariant and an environmental coordinate, ten times as many steps", steps=10000, measure_every=1000,
    minutes=0.6,
)
free = early.variant(
    "synthetic_trained_head", figures=("Fig. 6.2", "Fig. 6.3"), part="trained head",
    title="An invariant and an environmental coordinate, with a trained head", head="trained", init_scale=0.5,
    steps=10000, measure_every=1000, minutes=0.6,
)


@early.trial
def run(config: SyntheticConfig, recorder: Recorder) -> None:
    task = data.InvariantAndEnvironmental(config.n_train, config.n_test, in_domain=IN, out_of_domain=OUT,
        seed=config.streams.data, dtype=config.dtype)
    # `mlp` divides variances by the two inputs of each unit
    scales = [2 * config.init_scale**2, 2 * config.head_scale**2]
    net = nets.mlp(2, 2, 1, activation="identity", init_scale=scales, seed=config.streams.init, dtype=config.dtype)
    head = net.layers[1]
    head.requires_grad_(config.head == "trained")
    learner = learners.FeaturePenalised(net, head=head,
        penalty=learners.PENALTIES.get(config.method, measures.nuclear_norm),
        strength=config.strength if config.method != "erm" else 0.0, scaling=config.scaling, loss="logistic",
        optimizer=learners.gd(config.lr, config.weight_decay), steps_per_batch=config.measure_every)
    parts = {"train": task.train, "id": task.test, "ood": task.out_of_domain}
    fit(learner, task, config, recorder, steps=config.steps, probes=[probes.LossProbe(parts, config.measure_every)])
    A, readout = (weight.detach() for weight in net.parameters())
    w = tuple((readout @ A).flatten().tolist())
    values = {f"expected_accuracy/{name}": theory.nuclear_norm_dg.direction_accuracy(w, a)
        for name, a in (("id", IN), ("ood", OUT))}
    recorder.log(values | {"slope": w[1] / w[0]}, step=config.steps)
    recorder.array("decision", w=np.array(w))


@early.cost
def cost(config: SyntheticConfig):
    return Cost(parameters=6, flops=40.0 * config.n_train * config.steps, memory_bytes=64.0 * config.n_test)


def accuracy(runs, part, method):
    return runs.final(f"accuracy/{part}", method=method)


ALL = [late, free]


@early.claim("c1_accuracies_in_closed_form", also=ALL, kind="identity", origin="ours",
    says="measured accuracies equal the closed form for the direction of the decision (largest distance, in standard "
    "errors)", expect=at_most(4.5))
def closed_form(runs):
    n, distances = runs.values("n_test")[0], []
    for method in METHODS:
        for part in ("id", "ood"):
            expected = runs.final(f"expected_accuracy/{part}", method=method)
            error = max((expected * (1 - expected) / n) ** 0.5, 1 / n)
            distances.append(abs(accuracy(runs, part, method) - expected) / error)
    return max(distances)


# an identity: of no decision are both accuracies within these bounds, whatever was trained
@early.claim("c2_erm", also=[late], where="Fig. 6.2", paper=SYNTHETIC["ERM"], kind="identity",
    says="ERM's accuracy is nearly 1 in domain and about 0.76 out of domain",
    expect={"in domain": at_least(0.97), "out of domain": between(0.73, 0.79)})
def erm(runs):
    return {"in domain": accuracy(runs, "id", "erm"), "out of domain": accuracy(runs, "ood", "erm")}


# a few seeds end far off: where the fixed head is small, the penalty shrinks all features
@early.claim("c2_erm_nu", also=ALL, where="Fig. 6.3", paper=SYNTHETIC["ERM-NU"], within=(0, 1), about="median",
    says="ERM-NU's accuracy out of domain is about 0.94 (median over seeds)", expect=between(0.93, 0.97))
def with_nuclear(runs):
    return accuracy(runs, "ood", "nuclear")


@early.claim("c3_better_out_of_domain", also=ALL, where="Figs. 6.2, 6.3", paper="0.94 against 0.76",
    says="ERM-NU's accuracy out of domain is higher than ERM's (difference)", expect=above(0))
def gain(runs):
    return accuracy(runs, "ood", "nuclear") - accuracy(runs, "ood", "erm")


@early.claim("c3b_better_than_the_frobenius_norm", also=ALL, origin="ours",
    says="ERM-NU's accuracy out of domain is higher than that with the Frobenius norm of the features in place of the "
    "nuclear norm (difference)", expect=above(0))
def over_frobenius(runs):
    return accuracy(runs, "ood", "nuclear") - accuracy(runs, "ood", "frobenius")


@early.draw(cols=3, size=(11, 3.7))
def panels(runs, axes):
    x, y = data.environment_samples(300, OUT, data.stream(0, "drawing"))
    reach = np.linspace(-1, 1, 3)
    for axis, (method, title) in zip(axes[0], list(METHODS.items())[:2], strict=False):
        for label, colour in ((-1, CATEGORIES[0]), (1, CATEGORIES[1])):
            axis.scatter(*x[y[:, 0] == label].T.numpy(), s=5, color=colour, alpha=0.5, label=f"y = {label}")
        for decision in runs.arrays("decision", method=method):
            w = decision["w"]
            axis.plot(-reach * w[1] / w[0], reach, color="black", linewidth=0.8, alpha=0.5)
        ood = accuracy(runs, "ood", method)
        axis.set(title=f"{title}: {ood:.3f}, paper {SYNTHETIC[title]:g}", xlim=(-1, 1), ylim=(-1, 1))
        axis.set(xlabel="invariant coordinate", ylabel="environmental coordinate")
    axes[0, 0].legend(loc="lower right", frameon=True)
    right = axes[0, 2]
    t = np.array([0, 1])
    right.plot(1 - (1 - IN) / 2 * t, 1 - (1 - OUT) / 2 * t, color=CATEGORIES[5], linewidth=1, label="all 0 ≤ t ≤ 1")
    for (method, title), colour in zip(METHODS.items(), CATEGORIES[2:], strict=False):
        points = [runs.finals(f"accuracy/{part}", method=method) for part in ("id", "ood")]
        right.scatter(*points, s=14, color=colour, label=title, zorder=3)
        if title in SYNTHETIC:
            paper_level(right, SYNTHETIC[title], f"paper, {title}", color=colour)
    right.set(xlabel="accuracy in domain", ylabel="accuracy out of domain", title="a dot for each seed")
    legend_beside(right)
