"""Draw and measure relabelled classes: maps of distances, planes of samples, curves over epochs."""


from featurelab.pipelines import CATEGORIES, band, heatmap, legend_below, np, null_level

SNAPSHOTS = (20 / 350, 120 / 350, 240 / 350, 1.0)  # the paper's epochs 20, 120, 240, 349 of 350


def cell(runs):
    """Return the runs at the rate and weight decay of the paper's main figures; all runs where none has them."""
    chosen = runs.where(lr=0.1, weight_decay=5e-4)
    return chosen if len(chosen.trials) else runs


def structure(runs, **where):
    """Return final distances within a class (a) and between twins (b) over those between labels, and MSDR."""
    same, twin, other = (runs.final(f"class_distance/{part}", **where) for part in ("same", "twin", "other"))
    a, b = same / other, twin / other
    ratio, share = (runs.final(metric, **where) for metric in ("msdr/head", "accuracy/train"))
    return {"a/b": a / b, "b": b, "MSDR": ratio, "train accuracy": share}


def best(runs, **where):
    """Return the best test accuracy over the epochs of training on the original classes, as the paper does."""
    return float(runs.curves("accuracy/test", labels="original", **where).max().mean())


def distance_map(axis, D, title, note="class"):
    """Draw class distances over their maximum; dark is near."""
    heatmap(axis, D / D.max(), title, note)
    axis.set_ylabel("class")


def distances(axes, history, prefix="D, ", shares=SNAPSHOTS):
    """Draw the class distances measured nearest to these shares of the training, never those before training.

    None is drawn twice where enough were measured.
    """
    epochs, matrices = history["epochs"], history["matrices"]
    free = np.flatnonzero(epochs > 0)
    for axis, share, left in zip(axes, shares, reversed(range(len(shares))), strict=False):
        near = free[: max(1, len(free) - left)]
        place = near[np.abs(epochs[near] - share * epochs[-1]).argmin()]
        free = free[free > place] if len(free) > left else free
        distance_map(axis, matrices[place], f"{prefix}epoch {epochs[place]:g}")


def plane(axis, samples, group, title):
    """Draw the samples of one coarse label laid out by t-SNE, coloured by the original class; nothing without t-SNE."""
    if not len(samples["points"]):
        axis.set_visible(False)
        return
    members = np.flatnonzero(samples["groups"] == group)
    _scatter(axis, samples["points"], samples["classes"], {c: f"class {c}" for c in members})
    axis.set(title=title, xlabel="t-SNE 1", ylabel="t-SNE 2")
    axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=2, markerscale=3, columnspacing=0.8)


def principal(axis, samples, title):
    """Draw all samples on two principal directions of H, coloured by the coarse label."""
    labels = samples["groups"][samples["classes"]]
    _scatter(axis, samples["principal"], labels, {label: f"label {label}" for label in range(labels.max() + 1)})
    axis.set(title=title, xlabel="component 1", ylabel="component 2")


def _scatter(axis, points, owners, names):
    for place, (owner, name) in enumerate(names.items()):
        x, y = points[owners == owner].T
        colour = CATEGORIES[place % len(CATEGORIES)]
        axis.scatter(x, y, s=3, color=colour, label=name, linewidths=0, rasterized=True)
    axis.set(xticks=[], yticks=[])
    axis.grid(visible=False)


def in_epochs(runs, steps):
    """Return steps as epochs; the last step ends the last epoch."""
    return np.asarray(steps) * (runs.trials.epochs.iloc[0] / max(steps))


def over_epochs(axis, runs, metrics, over=None):
    """Draw curves of metrics, by name and label, against the epoch, as shares of the metric `over` where given."""
    for (metric, label), colour in zip(metrics.items(), CATEGORIES, strict=False):
        table = runs.curves(metric) / (runs.curves(over) if over else 1)
        band(axis, table, in_epochs(runs, table.index), color=colour, label=label)
    axis.set_xlabel("epoch")


def ratios(axis, runs):
    """Draw distances within a class and between twins, over those to other labels, against the epoch."""
    names = {"class_distance/same": "a: same class", "class_distance/twin": "b: twin class"}
    over_epochs(axis, runs, names, over="class_distance/other")
    axis.set(title="class distances", ylabel="distance / other label", ylim=(0, None))
    legend_below(axis, 2)


def accuracies(axis, runs, title):
    """Draw training and test accuracy on the labels trained on, against the epoch."""
    over_epochs(axis, runs, {"accuracy/train": "train", "accuracy/test": "test"})
    axis.set(title=title, ylabel="accuracy", ylim=(0, 1.02))


def recovered(axis, runs, best):
    """Draw CLP, LPO and the test accuracy `best` of a network trained on the classes; dotted: chance for pairs."""
    axis.bar(["CLP", "LPO", "OT"], [runs.final("clp/head"), runs.final("lpo/head"), best], color=CATEGORIES[:3])
    null_level(axis, 0.5, "chance")
    axis.set(ylim=(0, 1.05))
