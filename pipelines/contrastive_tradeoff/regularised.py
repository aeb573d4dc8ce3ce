"""Tables 7.1, F.5 and F.9, Figure F.8. A contrastive loss in fine-tuning, and before a linear probe.

Fine-tuning (FT) minimises the classification loss on a few labelled pictures of the target, contrastive regularisation
(CR) adds lambda times a contrastive loss on views of the same pictures. The paper finds CR > FT in 19 of 20 cells and
CR > a linear probe (LP) in 19 of 20. Here labels are learned on the clean picture alone, or on views too; and CR stands
beside the same loss on unrelated pictures, which tells what it owes to the labelled ones.

Table F.9 trains contrastively on the target's unlabelled pictures before the probe: the gain grows with the diversity
of pre-training, from -0.03 to 6.79 points. A worse start leaves more room, so a short pre-training on the target, whose
probe is no better than the union's, is trained on too; and unrelated pictures are used in place of the target's.

The trials are those of `contrastive_tradeoff/unions`.
"""

from featurelab.pipelines import CATEGORIES, above, at_most, measures, np, torch
from featurelab.pipelines.contrastive_tradeoff import unions
from featurelab.pipelines.contrastive_tradeoff.unions import FIRST, WHOLE, cell

TUNED = [trial for trial in unions.GROWING if trial[3]]
WAYS = {
    "ft": "FT, clean",
    "cr": "CR, clean",
    "cr_others": "CR on others",
    "ft_views": "FT, views",
    "cr_views": "CR, views",
}

figure = unions.figure.variant(
    "regularised", figures=("Table 7.1", "Table F.5"), title="Fine-tuning with and without contrastive regularisation",
    caption="Accuracy on the target after pre-training on it alone (D) and on the union (DSGN). Labels are learned on "
    "clean pictures, or on views too. Bars are means over seeds, lines their range.",
    grid={unions.AXES: TUNED, "seed": [0, 1, 2]}, paper_grid={unions.AXES: unions.PAPER_CELLS[:4], "seed": [0, 1, 2]},
    reads=unions.figure, minutes=1.2, controls=("permuted_labels", "untrained", "shuffled_pairs"), small=unions.TINY,
)


def counts(runs):
    (labels,) = {tuple(labels) for labels in runs.trials.tune_labels}
    return labels


def cells(runs, way):
    """Accuracy of a way of fine-tuning: one row a union, one column a number of labels."""
    tuned = runs.where(tune=True)
    names = list(dict.fromkeys(tuned.values("union")))
    return np.array([[cell(tuned, f"tuned/{way}/{n}", union) for n in counts(runs)] for union in names])


@figure.claim("c17_cr_over_ft", paper="CR > FT in 19 of 20 cells", where="Tables 7.1, F.5",
    says="with labels learned on clean pictures, CR is better than FT, averaged over cells (gain)", expect=above(0))
def over_ft(runs):
    return float((cells(runs, "cr") - cells(runs, "ft")).mean())


@figure.claim("c17b_cr_over_ft_on_the_same_views", paper="CR > FT in 19 of 20 cells", where="Tables 7.1, F.5",
    says="with labels learned on the same views as the contrastive loss, CR is better than FT, averaged over cells "
    "(gain)", expect=above(0))
def over_ft_on_views(runs):
    return float((cells(runs, "cr_views") - cells(runs, "ft_views")).mean())


@figure.claim("c17c_cr_over_contrast_elsewhere", origin="ours", where="Tables 7.1, F.5", expect=above(0),
    says="CR is better than FT with the contrastive loss of as many unrelated pictures (gain)")
def over_others(runs):
    return float((cells(runs, "cr") - cells(runs, "cr_others")).mean())


@figure.claim("c17d_both_over_the_probe", paper="93.6 and 94.5 against 88.4% (CINIC-10)", where="Tables 7.1, F.5",
    says="FT and CR on views are better than a linear probe on the same labels (gains, averaged over cells)",
    expect={"FT": above(0), "CR": above(0)})
def over_probe(runs):
    probe = cells(runs, "lp")
    return {name: float((cells(runs, way) - probe).mean()) for name, way in
        {"FT": "ft_views", "CR": "cr_views"}.items()}


def ranged_bars(axis, found, xs, **look):
    """The mean of each row of values, with a line over their range."""
    means = np.array([values.mean() for values in found])
    ends = np.array([means - [values.min() for values in found], [values.max() for values in found] - means])
    axis.bar(xs, means, yerr=ends.clip(min=0), **look)


@figure.draw(cols=2, size=(11, 4))
def panels(runs, axes):
    tuned = runs.where(tune=True)
    names = list(dict.fromkeys(tuned.values("union")))
    for axis, union in zip(axes[0], (names[0], names[-1]), strict=True):
        for place, n in enumerate(counts(runs)):
            found = [tuned.finals(f"tuned/{way}/{n}", union=union) for way in WAYS]
            xs = np.arange(len(WAYS)) + 0.8 * ((place + 0.5) / len(counts(runs)) - 0.5)
            label = f"{n} labels"
            ranged_bars(axis, found, xs, width=0.75 / len(counts(runs)), color=CATEGORIES[place], label=label)
        axis.set_xticks(range(len(WAYS)), WAYS.values(), rotation=30, ha="right")
        axis.set(ylabel="accuracy on the target", ylim=(0.6 if union in (FIRST, WHOLE) else 0, 1.08),
            title={FIRST: "pre-trained on D", WHOLE: "pre-trained on DSGN"}.get(union, union))
        axis.legend(loc="upper left", ncols=5)


before_probe = unions.figure.variant(
    "before_probe", figures=("Table F.9", "Table F.10", "Table F.11"),
    title="Contrastive training on unlabelled pictures, then a probe",
    caption="Gain of the probe by further training on the target's pictures, and on others. Early: an eighth of the "
    "pre-training on the target. Bars are means over seeds, lines their range.",
    grid={unions.AXES: [*TUNED, *unions.EARLY], "seed": [0, 1, 2]},
    paper_grid={unions.AXES: [*unions.PAPER_CELLS[:4], unions.PAPER_CELLS[-1]], "seed": [0, 1, 2]}, reads=unions.figure,
    minutes=1.4, small=unions.TINY,
)


def gain(runs, union, source="target", length="own"):
    return cell(runs, f"gain/{source}", union, length)


@before_probe.claim("c18_gain_grows_with_diversity", paper="-0.03 and 6.79 points", where="Table F.9",
    says="the probe gains more by contrastive training on the target after the most diverse pre-training than after "
    "the specific one (difference of gains)", expect=above(0))
def diverse_gain(runs):
    first, *_, last = unions.steps_of(runs)
    return gain(runs, last) - gain(runs, first)


@before_probe.claim("c18b_not_by_a_worse_start", origin="ours", where="Table F.9",
    says="and more than after a short specific pre-training, whose probe starts from no more than 0.02 above "
    "(difference of gains, difference of starts)", expect={"gain": above(0), "start": at_most(0.02)})
def matched_gain(runs):
    first, *_, last = unions.steps_of(runs)
    starts = cell(runs, "gain/base", first, "early") - cell(runs, "gain/base", last)
    return {"gain": gain(runs, last) - gain(runs, first, length="early"), "start": starts}


@before_probe.claim("c18c_by_the_targets_pictures", origin="ours", where="Table F.9",
    says="after the union, training on the target's pictures gains more than training on shapes, and on noise "
    "(differences of gains)", expect={"others": above(0), "noise": above(0)})
def target_gain(runs):
    last = unions.steps_of(runs)[-1]
    other = next(name for name in ("shapes", "svhn") if runs.has(f"gain/{name}", union=last))
    return {
        "others": gain(runs, last) - gain(runs, last, other), "noise": gain(runs, last) - gain(runs, last, "noise")
    }


@before_probe.draw(size=(7.5, 4))
def gains_drawn(runs, axes):
    (axis,) = axes[0]
    unions_known = unions.steps_of(runs)
    groups = [(unions_known[0], "own", "D"), (unions_known[0], "early", "D, early"), (unions_known[-1], "own", "union")]
    sources = [name for name in ("target", "shapes", "svhn", "noise") if runs.has(f"gain/{name}")]
    for place, (source, tint) in enumerate(zip(sources, CATEGORIES, strict=False)):
        found = [runs.finals(f"gain/{source}", union=union, length=length) for union, length, _ in groups]
        xs = np.arange(3) + 0.28 * (place - 1)
        ranged_bars(axis, found, xs, width=0.26, color=tint, label=f"on {source}")
    bases = [runs.final("gain/base", union=union, length=length) for union, length, _ in groups]
    names = [f"{name}\n(probe {base:.2f})" for (_, _, name), base in zip(groups, bases, strict=True)]
    axis.set_xticks(range(3), names)
    axis.axhline(0, color="#999999", linewidth=1)
    axis.set(xlabel="pre-trained on", ylabel="gain of the probe by further training")
    axis.legend(loc="lower right")


picture = unions.figure.variant(
    "feature_picture", figures=("Fig. F.8",), title="Features of the target before and after fine-tuning",
    caption="t-SNE of features of length 1 of the target's test pictures, one seed; colours are classes. The number is "
    "the mean silhouette over seeds.", grid={unions.AXES: [TUNED[-1]], "seed": [0, 1, 2]},
    paper_grid={unions.AXES: [unions.PAPER_CELLS[3]],
        "seed": [0, 1, 2]}, reads=unions.figure, minutes=0.5, controls=("permuted_labels", "untrained"),
    small=unions.TINY,
)


def apart(runs, way):
    """The mean silhouette of the target's classes."""
    return runs.final("silhouette/target" if way == "lp" else f"silhouette/{way}/{counts(runs)[-1]}")


@picture.claim("f8_classes_lie_apart", paper="CR cleaner than FT (a picture)", where="Fig. F.8",
    says="classes lie farther apart after CR than after FT, and after FT than before, on clean pictures (differences "
    "of silhouettes)", expect={"CR": above(0), "FT": above(0)})
def lie_apart(runs):
    return {"CR": apart(runs, "cr") - apart(runs, "ft"), "FT": apart(runs, "ft") - apart(runs, "lp")}


@picture.draw(cols=3, size=(11, 3.9))
def planes(runs, axes):
    seed = runs.values("seed")[0]
    ((plain,), (tuned,)) = (runs.where(seed=seed).arrays(name) for name in ("features", "tuned"))
    labels = np.asarray(plain["labels"])
    shown = {"LP": ("lp", plain["target"]), "FT": ("ft", tuned["ft"]), "CR": ("cr", tuned["cr"])}
    for axis, (name, (way, H)) in zip(axes[0], shown.items(), strict=True):
        rows, colours = torch.from_numpy(np.asarray(H)[:1000]), labels[:1000]
        plane = measures.tsne_plane(rows, seed=0)
        axis.scatter(*plane.T, c=colours, cmap="tab10", s=5)
        axis.set(title=f"{name}: silhouette {apart(runs, way):.2f}", xticks=[], yticks=[])
        axis.grid(visible=False)
