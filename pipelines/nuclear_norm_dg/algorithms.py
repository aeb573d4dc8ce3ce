"""Tables 6.1 to 6.3 and Figure 6.4. ERM, Mixup and SWAD generalise better to a new domain with the nuclear norm.

Each domain is held out in turn while the others are trained on; accuracies are those on the held-out domain at the end
of training. For every method three values of its own factor are tried, and validation in domain selects one, as in
`tuning`. The same algorithms run here on coloured digits, so the numbers cannot be the paper's, whose printed tables
`nuclear_norm_dg/tables` checks.
"""

from featurelab.pipelines import CATEGORIES, Experiment, above, choice, loguniform, np, null_level
from featurelab.pipelines.nuclear_norm_dg.domains import AGREEMENTS, CONTROLS, DomainConfig, cost, train
from featurelab.pipelines.nuclear_norm_dg.printed import ALGORITHMS, WITH_AND_WITHOUT
from featurelab.pipelines.nuclear_norm_dg.tuning import FIELDS, own_factor, selected, tried, tuned

IN_DOMAIN = "final_accuracy/id"
ROWS = WITH_AND_WITHOUT | {("erm", "coral"): "CORAL", ("swad", "coral"): "SWAD-CORAL"}

figure = Experiment(
    name="nuclear_norm_dg/algorithms", figures=("Table 6.1", "Table 6.2", "Table 6.3", "Fig. 6.4"),
    published={"Table 6.1": "Table 1"},
    title="Algorithms with and without the nuclear norm, each domain held out",
    caption="Coloured digits. Bars: means over seeds and held-out domains; lines: range over seeds. Right: how often "
    "validation in domain selects each value of a method's own factor.", laptop=DomainConfig(),
    paper=DomainConfig(steps=5001), grid={FIELDS: tried(ROWS), "held_out": [0, 1, 2, 3], "seed": [0, 1, 2]},
    sweep_axes={"strength": loguniform(1e-3, 10.0), "lr": loguniform(1e-4, 1e-2), "width": choice(32, 64, 128),
        "weight_decay": loguniform(1e-6, 1e-2)}, metric="final_accuracy/ood", mode="max", minutes=8,
    controls=CONTROLS[:2],
    small={"steps": 6, "start_step": 2, "measure_every": 3, "average_every": 2, "width": 8, "batch_size": 4,
        "held_out": [0, 3], FIELDS: tried(ROWS)[::3]},
)
figure.trial(train)
figure.cost(cost)


def accuracy(runs, algorithm, penalty):
    """Accuracy out of domain with the factor selected in domain, averaged over held-out domains."""
    return tuned(runs, "final_accuracy/ood", algorithm, penalty, IN_DOMAIN)


@figure.claim("nu_improves", where="Table 6.2, Fig. 6.4", paper="all of ERM, Mixup and SWAD gain, on all five sets",
    controls=CONTROLS, says="the nuclear norm raises the accuracy out of domain of ERM, Mixup and SWAD (gains, "
    "averaged over held-out domains)", expect={name: above(0) for name in ALGORITHMS.values()})
def gains(runs):
    return {name: accuracy(runs, a, "nuclear") - accuracy(runs, a, "none") for a, name in ALGORITHMS.items()}


@figure.claim("nu_over_coral", where="Table 6.3", paper="SWAD-NU 71.8, SWAD-CORAL 71.3",
    says="SWAD gains more accuracy out of domain from the nuclear norm than from CORAL (difference)", expect=above(0))
def over_coral(runs):
    return accuracy(runs, "swad", "nuclear") - accuracy(runs, "swad", "coral")


@figure.claim("swad_over_erm", where="Table 6.1", paper="66.9 against 63.3",
    says="SWAD's accuracy out of domain is higher than ERM's (difference)", expect=above(0))
def dense_average(runs):
    return accuracy(runs, "swad", "none") - accuracy(runs, "erm", "none")


@figure.draw(cols=3, size=(13.5, 4.0))
def panels(runs, axes):
    left, middle, right = axes[0]
    one_seed = [runs.where(seed=seed) for seed in runs.values("seed")]
    heights = np.array([[accuracy(seed, *row) for seed in one_seed] for row in ROWS])
    xs, means = np.arange(len(ROWS)), heights.mean(1)
    ends = [means - heights.min(1), heights.max(1) - means]
    left.bar(xs, means, yerr=ends, color=[CATEGORIES[list(ALGORITHMS).index(a)] for a, _ in ROWS])
    left.set_xticks(xs, list(ROWS.values()), rotation=40, ha="right")
    left.set(ylabel="accuracy out of domain", ylim=(heights.min() - 0.02, None), title="mean over held-out domains")
    for (algorithm, name), colour in zip(ALGORITHMS.items(), CATEGORIES, strict=False):
        gained = [accuracy(some, algorithm, "nuclear") - accuracy(some, algorithm, "none")
            for some in (runs.where(held_out=d) for d in runs.values("held_out"))]
        middle.plot([AGREEMENTS[d] for d in runs.values("held_out")], gained, marker="o", color=colour, label=name)
    null_level(middle, 0, "no gain")
    middle.set(xlabel="agreement of colour and label in the held-out domain", ylabel="gain by the nuclear norm")
    middle.legend()
    for place, row in enumerate(ROWS):
        counted = [own_factor(some.trials.iloc[0]) for some in selected(runs, *row, IN_DOMAIN)]
        trials = runs.where(algorithm=row[0], penalty=row[1]).trials
        values = sorted({own_factor(trial) for _, trial in trials.iterrows()})
        below = 0.0
        for rank, value in enumerate(values):
            share = counted.count(value) / len(counted)
            right.barh(place, share, left=below, color=str(0.85 - 0.2 * rank))
            if share > 0.1:
                right.text(below + share / 2, place, f"{value:g}", ha="center", va="center", fontsize=8)
            below += share
    right.set_yticks(xs, list(ROWS.values()))
    right.invert_yaxis()
    right.set(xlabel="share of seeds and held-out domains", title="factor selected in domain")
    right.grid(visible=False)
