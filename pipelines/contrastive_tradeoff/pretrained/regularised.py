"""Tables 7.1, F.5 and F.9, Figure F.8. A contrastive loss in fine-tuning, and before a linear probe.

Fine-tuning (FT) minimises the classification loss on a few labelled pictures of the target. Contrastive regularisation
(CR) adds lambda times a contrastive loss on views of the same pictures. The paper finds CR > FT in 19 of 20 cells and
CR > a linear probe (LP) in 19 of 20. Here labels are learned on the clean picture alone, on one of the two contrasted
views, as in the authors' program, or on the clean picture and both views. CR is also compared with the contrastive loss
of unrelated pictures, which tells what it owes to the labelled ones.

Table F.9 trains contrastively on the target's unlabelled pictures before the probe: the gain grows with the diversity
of pre-training, from -0.03 to 6.79 points. A worse start leaves more room, so a brief pre-training on the target, whose
probe is no better than the union's, is compared too; and unrelated pictures replace the target's.

The trials are those of `unions`.
"""

from typing import Any

from featurelab.pipelines import (
    CATEGORIES, above, at_most, legend_below, measures, np, null_level, printed_table, torch,
)
from featurelab.pipelines.contrastive_tradeoff.pretrained import unions
from featurelab.pipelines.contrastive_tradeoff.pretrained.unions import (
    DESKTOP_NETWORKS, NAMES, NETWORKS, PAPER_NETWORKS, SETTINGS, Unions, grid_of,
)

WAYS = {"ft": "FT, clean", "cr": "CR, clean", "cr_others": "CR on others", "ft_view": "FT, one view",
    "cr_view": "CR, one view", "ft_views": "FT, all three", "cr_views": "CR, all three"}
TUNED = f"fine-tuning on 50 and 200 labels for 50 epochs; {unions.REDUCED}"
ADAPTED = f"5 epochs of further training; {unions.REDUCED}"
OTHERS = ("shapes", "svhn", "mnist")  # the set, one of each scale, that is not like the target

figure = unions.figure.variant(
    "regularised", figures=("Table 7.1", "Table F.5"), title="Fine-tuning with and without contrastive regularisation",
    caption="Accuracy on the target after pre-training on it alone (D) and on the union (DSGN). Labels are learned on "
    "clean pictures, on one of two views, or on all three. Bars are means over seeds, lines their range.",
    grid=grid_of([NETWORKS["D"], NETWORKS["DSGN"]], *SETTINGS),
    paper_grid=grid_of([PAPER_NETWORKS[name] for name in NAMES], *SETTINGS), reads=unions.figure, minutes=1.2,
    desktop=unions.DESKTOP, desktop_minutes=11, reduced=TUNED,
    desktop_grid=grid_of([DESKTOP_NETWORKS["D"], DESKTOP_NETWORKS["DSGN"]], *SETTINGS),
)


def counts(runs):
    """Numbers of labelled pictures of fine-tuning."""
    (labels,) = {tuple(labels) for labels in runs.trials.tune_labels}
    return labels


def gain(runs, way, over):
    """How much better one way of fine-tuning is than another, averaged over unions and numbers of labels."""
    tuned = runs.where(tune=True)

    def accuracies(way):
        return np.array([[Unions(tuned).of(f"tuned/{way}/{n}", union) for n in counts(runs)]
            for union in dict.fromkeys(tuned.values("union"))])

    return float((accuracies(way) - accuracies(over)).mean())


@figure.claim("c17_cr_over_ft", origin="ours",
    says="With labels learned on clean pictures, CR is better than FT (gain, averaged over unions and labels)",
    expect=above(0))
def over_ft(runs):
    return gain(runs, "cr", over="ft")


@figure.claim("c17b_cr_over_ft_on_the_same_views", paper="CR > FT in 19 of 20 cells",
    says="With labels learned on the views of the contrastive loss, CR is better than FT (gain of accuracy, averaged "
    "over unions and labels)", expect=above(0))
def over_ft_on_views(runs):
    return gain(runs, "cr_views", over="ft_views")


@figure.claim("c17n_cr_over_ft_on_one_view", paper="CR > FT in 19 of 20 cells",
    says="With labels learned on one of the two contrasted views, as in the authors' program, CR is better than FT "
    "(gain of accuracy, averaged over unions and labels)", expect=above(0))
def over_ft_on_one_view(runs):
    return gain(runs, "cr_view", over="ft_view")


@figure.claim("c17c_cr_over_contrast_elsewhere", origin="ours", expect=above(0),
    says="CR is better than FT with the contrastive loss of as many unrelated pictures (gain of accuracy, averaged "
    "over unions and labels)")
def over_others(runs):
    return gain(runs, "cr", over="cr_others")


@figure.claim("c17d_both_over_the_probe", paper="93.6 and 94.5 against 88.4% (CINIC-10)",
    says="FT and CR with views are better than a linear probe on the same labels (gains of accuracy, averaged over "
    "unions and labels)", expect={"FT": above(0), "CR": above(0)})
def over_probe(runs):
    return {"FT": gain(runs, "ft_views", over="lp"), "CR": gain(runs, "cr_views", over="lp")}


def ranged_bars(axis, rows, xs, **look):
    """A bar at the mean of each row of values, with a line over their range."""
    means = np.array([values.mean() for values in rows])
    ends = np.array([means - [values.min() for values in rows], [values.max() for values in rows] - means])
    axis.bar(xs, means, yerr=ends.clip(min=0), **look)


@figure.draw(cols=2, size=(11, 4.2))
def panels(runs, axes):
    tuned, labels = runs.where(tune=True), counts(runs)
    names = list(dict.fromkeys(tuned.values("union")))
    for axis, union in zip(axes[0], (names[0], names[-1]), strict=True):
        for place, n in enumerate(labels):
            rows = [tuned.finals(f"tuned/{way}/{n}", union=union) for way in WAYS]
            xs = np.arange(len(WAYS)) + 0.8 * ((place + 0.5) / len(labels) - 0.5)
            ranged_bars(axis, rows, xs, width=0.75 / len(labels), color=CATEGORIES[place], label=f"{n} labels")
        axis.set_xticks(range(len(WAYS)), WAYS.values(), rotation=30, ha="right")
        title = {NETWORKS["D"].union: "pre-trained on D", NETWORKS["DSGN"].union: "pre-trained on DSGN"}
        axis.set(ylabel="accuracy on the target", title=title.get(union, union))
    legend_below(axes)


before_probe = unions.figure.variant(
    "before_probe", figures=("Table F.9", "Table F.10", "Table F.11"),
    title="Contrastive training on unlabelled pictures, then a probe",
    caption="Gain of the probe by further training on the target's pictures, and on others. Early: an eighth of the "
    "pre-training on the target. From each start further training takes as many updates. Bars are means over seeds, "
    "lines their range. Crosses: the paper, CIFAR-10.",
    grid=grid_of([NETWORKS[name] for name in ("D", "DSGN", "early")], *SETTINGS),
    paper_grid=grid_of([PAPER_NETWORKS[name] for name in (*NAMES, "early")], *SETTINGS),
    reads=unions.figure, minutes=1.4, desktop=unions.DESKTOP, desktop_minutes=12, reduced=ADAPTED,
    desktop_grid=grid_of([DESKTOP_NETWORKS[name] for name in ("D", "DSGN", "early")], *SETTINGS),
)


@before_probe.claim("c18_gain_grows_with_diversity", paper="-0.03 and 6.79 points", where="Table F.9",
    says="Contrastive training on the target improves the probe more after pre-training on the whole union than on the "
    "first set (difference of gains)", expect=above(0))
def diverse_gain(runs):
    return -Unions(runs).fall("gain/target")


@before_probe.claim("c18b_not_by_a_worse_start", origin="ours", where="Table F.9",
    says="Contrastive training on the target improves the probe more after the whole union than after a brief training "
    "on the first set, which starts from at most 0.02 above (difference of gains, difference of starts)",
    expect={"gain": above(0), "start": at_most(0.02)})
def matched_gain(runs):
    of, first, whole = Unions(runs).of, Unions(runs).first, Unions(runs).whole
    start = of("gain/base", first, "early") - of("gain/base", whole)
    return {"gain": of("gain/target", whole) - of("gain/target", first, "early"), "start": start}


@before_probe.claim("c18c_by_the_targets_pictures", origin="ours", where="Table F.9",
    says="After the whole union, contrastive training on the target's pictures improves the probe more than training "
    "on another set, and on noise (differences of gains)", expect={"others": above(0), "noise": above(0)})
def target_gain(runs):
    whole = Unions(runs).whole
    other = next(name for name in OTHERS if runs.has(f"gain/{name}", union=whole))
    gain = {name: Unions(runs).of(f"gain/{name}", whole) for name in ("target", other, "noise")}
    return {"others": gain["target"] - gain[other], "noise": gain["target"] - gain["noise"]}


@before_probe.draw(size=(7.5, 4))
def gains_drawn(runs, axes):
    (axis,), own = axes[0], Unions(runs)
    starts = {"D": {"union": own.first, "length": "own"}, "D, early": {"union": own.first, "length": "early"},
        "union": {"union": own.whole, "length": "own"}}
    sources = [name for name in ("target", *OTHERS, "noise") if runs.has(f"gain/{name}")]
    for place, (source, color) in enumerate(zip(sources, CATEGORIES, strict=False)):
        rows = [runs.finals(f"gain/{source}", **start) for start in starts.values()]
        ranged_bars(axis, rows, np.arange(3) + 0.28 * (place - 1), width=0.26, color=color, label=f"on {source}")
    table: Any = printed_table(__file__, "table_f_9.csv")
    printed = [(row["CR+LP"] - row["LP"]) / 100 for row in table]
    axis.plot([-0.28, 1.72], [printed[0], printed[-1]], "kx", label="paper, on target")
    bases = [runs.final("gain/base", **start) for start in starts.values()]
    axis.set_xticks(range(3), [f"{name}\n(probe {base:.2f})" for name, base in zip(starts, bases, strict=True)])
    null_level(axis, 0)
    axis.set(xlabel="pre-trained on", ylabel="gain of the probe by further training")
    axis.legend(loc="best")


picture = unions.figure.variant(
    "feature_picture", figures=("Fig. F.8",), title="Features of the target before and after fine-tuning",
    caption="t-SNE of features, scaled to length 1, of the target's test pictures, one seed; colours are classes. The "
    "number is the mean silhouette over seeds. Fine-tuning has the most labels. (The paper: training pictures, a fifth "
    "of the labels.)", grid=grid_of([NETWORKS["DSGN"]], *SETTINGS),
    paper_grid=grid_of([PAPER_NETWORKS["DSGN"]], *SETTINGS), reads=unions.figure, minutes=0.5,
    controls=("permuted_labels", "untrained"), desktop=unions.DESKTOP, desktop_minutes=6, reduced=TUNED,
    desktop_grid=grid_of([DESKTOP_NETWORKS["DSGN"]], *SETTINGS),
)


def silhouette(runs, way):
    """The mean silhouette of the target's classes."""
    return runs.final("silhouette/target" if way == "lp" else f"silhouette/{way}/{counts(runs)[-1]}")


@picture.claim("f8_classes_lie_apart", paper="CR cleaner than FT (a picture)",
    says="With labels learned on clean pictures, the target's classes lie farther apart after CR than after FT, and "
    "after FT than before (differences of silhouettes)", expect={"CR": above(0), "FT": above(0)})
def lie_apart(runs):
    before, ft, cr = (silhouette(runs, way) for way in ("lp", "ft", "cr"))
    return {"CR": cr - ft, "FT": ft - before}


@picture.draw(cols=3, size=(11, 3.9))
def planes(runs, axes):
    seed = runs.values("seed")[0]
    ((before,), (tuned,)) = (runs.where(seed=seed).arrays(name) for name in ("features", "tuned"))
    for axis, (way, H) in zip(
        axes[0], {"lp": before["target"], "ft": tuned["ft"], "cr": tuned["cr"]}.items(), strict=True):
        plane = measures.tsne_plane(torch.from_numpy(np.asarray(H)[:1000]), seed=0)
        axis.scatter(*plane.T, c=np.asarray(before["labels"])[:1000], cmap="tab10", s=5)
        axis.set(title=f"{way.upper()}: silhouette {silhouette(runs, way):.2f}", xticks=[], yticks=[])
        axis.grid(visible=False)
