"""Networks 1 and 2. At equal collapse, do better aligned networks tell classes never seen apart better?

Along one run all measures drift, and any two that drift correlate. Here runs are compared with each other: the network
of the neural feature ansatz learns eight digits at several learning rates, widths and initialisation scales, with
different pairs of digits held out. Every run is read where it reaches the same NC1, so that runs do not differ in how
far their classes have collapsed. Noise keeps Recall@1 of the two unseen digits below its ceiling.

The second figure asks where unseen classes lie. The network of alignment and elasticity separates two classes along one
axis; two unseen classes, equally far from each other, lie on one side of its boundary or on both.
"""

from featurelab.pipelines import CATEGORIES, Missing, above, at_least, band, below, measures, np, null_level, torch
from featurelab.pipelines.cross.along_training import PLACES, ansatz, two_layer

MATCHED = 0.5  # the NC1 of the features at which runs are compared
PAIRS = [(3, 5), (4, 9), (8, 9)]
SIDES = {"one side": (0.3, 0.9), "both sides": (0.3, -0.3)}

matched = ansatz.variant(
    "matched_collapse", figures=("Network 1",), part="many runs", title="Unseen digits at equal collapse, across runs",
    caption="A dot is a run at the step where its NC1 reaches 0.5. Right: means over runs, bands the range over seeds.",
    noise=1.0, steps=1000, measurements=25, minutes=2,
    grid={"lr": [0.3, 0.8], "width": [32, 64], "init_scale": [0.3, 1.0], "unseen_digits": PAIRS,
        "seed": [0, 1, 2, 3, 4, 5]},
    small={"steps": 80, "measurements": 8, "n_train": 32, "width": [16], "lr": [0.8, 1.0], "unseen_digits": [(3, 5)],
        "dim": 64},
)
sides = two_layer.variant(
    "sides_of_the_boundary", figures=("Network 2",), part="two pairs",
    title="Unseen classes on one side of a boundary and on both",
    caption="Means over seeds and their range. In both pairs, the classes are 0.6 of the length of a class mean apart.",
    grid={"unseen_shares": list(SIDES.values()), "seed": [0, 1, 2, 3, 4, 5]},
)


def met(runs):
    """Arrays over runs: measures where each first has NC1 = MATCHED, interpolated in ln NC1, and Recall@1 at both ends.

    The array `pair` numbers the digits held out. Runs that never reach this NC1 are left out; raises `Missing` where
    that is more than half of them.
    """
    layer, head = PLACES["ansatz"]
    paths = {"nfa": f"nfa/{layer}", "cnfa": f"cnfa/{layer}", "recall": "recall_at_1/all"}
    rows = []
    for run in (runs.where(run_id=run_id) for run_id in runs.trials.run_id):
        excess = np.log(run.curve(f"nc1/{head}") / MATCHED)
        if (excess <= 0).any():
            first = int((excess <= 0).to_numpy().argmax())
            near = excess.iloc[max(0, first - 1) : first + 1][::-1]
            step = np.interp(0, near.to_numpy(), near.index)
            curves = {name: run.curve(metric) for name, metric in paths.items()}
            row = {name: np.interp(step, curve.index, curve) for name, curve in curves.items()}
            row |= {"before": curves["recall"].iloc[0], "end": curves["recall"].iloc[-1]}
            rows.append(row | {"pair": PAIRS.index(tuple(run.values("unseen_digits")[0]))})
    if len(rows) < max(4, len(runs.trials) / 2):
        raise Missing(f"{len(rows)} of {len(runs.trials)} runs reach NC1 {MATCHED}")
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def within_pairs(matched_runs, name):
    """A quantity of `met` less its mean over the runs with the same digits held out, since some pairs are harder."""
    pairs, values = matched_runs["pair"], matched_runs[name]
    return values - np.array([values[pairs == pair].mean() for pair in pairs])


def across(runs, name):
    """Spearman's correlation over runs of a quantity with Recall@1 at equal NC1, both less the mean of their pair."""
    at_equal_nc1 = met(runs)
    x, y = (torch.from_numpy(within_pairs(at_equal_nc1, which)) for which in (name, "recall"))
    return measures.spearman(x, y).item()


@matched.claim("x6_first_told_better_apart", origin="ours",
    says="training tells unseen classes better apart until the classes trained on have NC1 0.5 (change of Recall@1)",
    expect=above(0))
def recall_gained(runs):
    at_equal_nc1 = met(runs)
    return float((at_equal_nc1["recall"] - at_equal_nc1["before"]).mean())


@matched.claim("x7_then_worse", origin="ours", says="as classes trained on collapse beyond NC1 0.5, unseen classes are "
    "told apart worse (change of Recall@1 to the end)", expect=below(0))
def recall_lost(runs):
    at_equal_nc1 = met(runs)
    return float((at_equal_nc1["end"] - at_equal_nc1["recall"]).mean())


@matched.claim("x8_nfa_goes_with_unseen_classes", origin="ours",
    says="at equal NC1, runs with a higher UC-NFA tell unseen classes better apart (Spearman within pairs of digits)",
    within=(-1, 1), expect=at_least(0.3))
def nfa_across(runs):
    return across(runs, "nfa")


@matched.claim("x9_c_nfa_goes_with_unseen_classes", origin="ours",
    says="at equal NC1, runs with a higher C-NFA tell unseen classes better apart (Spearman within pairs of digits)",
    within=(-1, 1), expect=at_least(0.3))
def c_nfa_across(runs):
    return across(runs, "cnfa")


@sides.claim("x10_sides", origin="ours", says="training tells unseen classes on both sides of its boundary better "
    "apart, and those on one side worse (change of Recall@1)", expect={"both sides": above(0), "one side": below(0)})
def recall_by_side(runs):
    paths = {name: runs.curve("recall_at_1/all", unseen_shares=shares) for name, shares in SIDES.items()}
    return {name: float(path.iloc[-1] - path.iloc[0]) for name, path in paths.items()}


@matched.draw(cols=3, size=(12, 3.9))
def meeting(runs, axes):
    seeds = [met(some) for _, some in runs.by_seed()]
    for axis, (name, label) in zip(axes[0], {"nfa": "UC-NFA", "cnfa": "C-NFA"}.items(), strict=False):
        for seed in seeds:
            axis.scatter(within_pairs(seed, name), within_pairs(seed, "recall"), s=12, color=CATEGORIES[0], alpha=0.6)
        axis.set(title=f"{label} at equal NC1", xlabel=f"{label} less its pair's mean",
            ylabel="Recall@1 less its pair's mean")
    moments = {"before": "before", "recall": f"NC1 = {MATCHED:g}", "end": "end"}
    for pair, colour in zip(runs.values("unseen_digits"), CATEGORIES, strict=False):
        chosen = [(seed, seed["pair"] == PAIRS.index(tuple(pair))) for seed in seeds]
        means = np.array([[seed[moment][of_pair].mean() for seed, of_pair in chosen] for moment in moments])
        band(axes[0, 2], means, range(3), color=colour, shade=0.15, marker="o", label=f"{pair[0]} and {pair[1]}")
    axes[0, 2].set_xticks(range(3), list(moments.values()))
    axes[0, 2].set(title="unseen digits told apart", ylabel="Recall@1")
    axes[0, 2].legend(title="held out")


@sides.draw(size=(7.5, 3.9))
def by_side(runs, axes):
    for (name, shares), colour in zip(SIDES.items(), CATEGORIES, strict=False):
        band(axes[0, 0], runs.curves("recall_at_1/all", unseen_shares=shares), color=colour, label=name)
    null_level(axes[0, 0], 0.5, "chance")
    axes[0, 0].set(xlabel="step", ylabel="Recall@1 of two unseen classes")
    axes[0, 0].legend(title="unseen classes on")
