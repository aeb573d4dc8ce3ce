"""Figures 1 and 3 to 6. Deep RFM collapses layer by layer without gradient descent.

Each layer fits a kernel regression to the labels, multiplies the data by the square root of the average gradient outer
product (AGOP) of its predictor, and applies random features. Figures 3 (ReLU) and 4 (cosine) follow

    NC1 = tr Sigma_W / tr Sigma_B   and   NC2 = mean square of (cosines of the centred class means - simplex ETF)

of a layer's input X, of M^(1/2) X and of the features Phi(M^(1/2) X). Figures 1, 5 and 6 show the centred cosines of
pairs of points after M^(1/2), sorted by class; after collapse they are 1 within a class and -1/(K-1) between classes.

The paper states no norm for NC2; like its public script, we take the mean square.
"""

import itertools

from featurelab.pipelines import CATEGORIES, Experiment, above, at_least, at_most, band, below, choice, loguniform, np
from featurelab.pipelines.deep_neural_collapse.rfm import RFMConfig, build, cost, line, trusted

RELU = RFMConfig(feature_map="relu")
PUBLIC = {"dataset": "cifar10", "n_train": 50_000, "n_test": 10_000, "depth": 20}
COS = RELU.but(feature_map="cos", width=1024, depth=8)
SEEDS = [0, 1, 2]
STAGES = {"input": "X", "projected": "$M^{1/2}X$", "features": "Φ($M^{1/2}X$)"}

relu = Experiment(
    name="deep_neural_collapse/deep_rfm_relu", trains=False, figures=("Fig. 3", "Fig. 6", "Fig. 1b"),
    title="Neural collapse in Deep RFM with ReLU features",
    caption="Lines are means over seeds, bands their range. Right: cosines after the AGOP, of one seed (black: -1).",
    laptop=RELU, paper=RELU.but(**PUBLIC, width=1024),
    desktop=RELU.but(dataset="mnist", n_train=1000, n_test=500, width=1024), desktop_minutes=3,
    desktop_grid={("dataset", "kernel"): [("cifar10", "laplace"), ("mnist", "gaussian")], "seed": SEEDS},
    reduced="1,000 images in place of 50,000, 10 layers in place of 20; no SVHN",
    grid={("dataset", "kernel"): [("digits", "laplace"), ("digits", "gaussian"), ("mixture", "laplace")],
        "seed": range(6)},
    paper_grid={("dataset", "kernel"): [("cifar10", "laplace"), ("mnist", "gaussian"), ("svhn", "laplace")],
        "seed": SEEDS}, sweep_axes={"width": choice(128, 256, 512, 1024), "bandwidth": loguniform(0.5, 8.0),
        "ridge": loguniform(1e-4, 1e-1)}, metric="nc1/projected", minutes=0.4,
    small={"n_train": 50, "n_test": 10, "width": 40, "depth": 3}, needs=("cifar10", "mnist", "svhn"),
    stand_in="scikit-learn's 8x8 digits (and a Gaussian mixture) in place of MNIST, CIFAR-10 and SVHN (same code path)",
    headline=True,
)
cos = relu.variant(
    "deep_rfm_cos", figures=("Fig. 4", "Fig. 5", "Fig. 1a"), title="Neural collapse in Deep RFM with cosine features",
    laptop=COS, paper=COS.but(**PUBLIC, width=4096),
    grid={("dataset", "kernel"): [("digits", "laplace")], "seed": range(6)},
    paper_grid={("dataset", "kernel"): [(name, "laplace") for name in ("cifar10", "mnist", "svhn")], "seed": SEEDS},
    minutes=0.8, small={"n_train": 50, "width": 256, "depth": 4},
    desktop=COS.but(dataset="mnist", n_train=1000, n_test=500, width=2048, depth=20), desktop_minutes=11,
    desktop_grid={("dataset", "kernel"): [(name, "laplace") for name in ("cifar10", "mnist")], "seed": SEEDS},
    reduced="1,000 images of each in place of 50,000, 2,048 features in place of 4,096; no SVHN",
)
relu.trial(build)
relu.cost(cost)


def rows(runs):
    """Return the rows of the figure as config values."""
    pairs = zip(runs.trials.dataset, runs.trials.kernel, strict=True)
    return [{"dataset": dataset, "kernel": kernel} for dataset, kernel in dict.fromkeys(pairs)]


def class_count(runs, row):
    return int(runs.where(**row).trials.classes.iloc[0]) if row["dataset"] == "mixture" else 10


def ratios(runs, metric, other):
    """Return the ratios of two metrics in every trusted layer of every row."""
    return np.concatenate([trusted(runs, metric, **row) / trusted(runs, other, **row) for row in rows(runs)])


def worst(runs, measure, pick=max):
    return float(pick(measure(runs, row) for row in rows(runs)))


def end_over_start(runs, row, metric="nc1"):
    return trusted(runs, f"{metric}/projected", **row)[-1] / trusted(runs, f"{metric}/input", **row)[0]


def spearman(runs, row):
    """Return the rank correlation of layer and NC1."""
    ranks = np.argsort(np.argsort(trusted(runs, "nc1/projected", **row)))
    return np.corrcoef(ranks, np.arange(len(ranks)))[0, 1]


def worst_line(runs, part):
    """Return the smallest R^2 and the largest slope of lines through a part of each row's layers."""
    fits, slopes = zip(*(line(part(trusted(runs, "nc1/projected", **row))) for row in rows(runs)), strict=True)
    return {"R²": float(min(fits)), "slope": float(max(slopes))}


def before_the_floor(values):
    """Return the leading values, each at least a fifth below the one before."""
    falls = [b <= 0.8 * a for a, b in itertools.pairwise(values)]
    return values[: 1 + (falls.index(False) if False in falls else len(falls))]


@relu.claim("c01_agop_reduces", also=[cos],
    says="multiplication by M^(1/2) lowers NC1 in every layer (largest ratio of after to before)",
    paper="drop at M^(1/2) in every layer; curves, no number", expect=below(1))
def agop_reduces(runs):
    return float(ratios(runs, "nc1/projected", "nc1/input").max())


@relu.claim("c02_features_worsen", says="ReLU features raise NC1 a little in every layer (smallest and largest factor)",
    paper="marginally increase or stay constant", where="Fig. 3, Appendix A",
    expect={"least": above(1), "greatest": below(2)})
def features_worsen(runs):
    factors = ratios(runs, "nc1/features", "nc1/projected")
    return {"least": float(factors.min()), "greatest": float(factors.max())}


@relu.claim("c02b_features_worsen_marginally",
    says="ReLU features raise NC1 by at most a tenth in every layer (largest factor)",
    paper="marginally increase or stay constant", where="Fig. 3, Appendix A", expect=at_most(1.1))
def marginally(runs):
    return float(ratios(runs, "nc1/features", "nc1/projected").max())


@relu.claim("c02c_features_undo_little_of_the_fall",
    says="in every layer, ReLU features undo less than half of the fall of ln NC1 at M^(1/2) (largest sum of the rise "
    "and half the fall)", paper="marginally increase or stay constant", where="Fig. 3, Appendix A", expect=below(0))
def undone(runs):
    rise, fall = (np.log(ratios(runs, metric, other))
        for metric, other in (("nc1/features", "nc1/projected"), ("nc1/projected", "nc1/input")))
    return float((rise + fall / 2).max())


@cos.claim("c02_features_worsen", says="cosine features raise NC1 strongly in every layer (smallest factor)",
    paper="curves, no number", expect=above(2))
def cos_features_worsen(runs):
    return float(ratios(runs, "nc1/features", "nc1/projected").min())


@relu.claim("c03_collapse_with_depth",
    says="NC1 after M^(1/2) falls with depth (rank correlation with the layer, last layer over the first input)",
    paper="curves, no number", least={"Spearman": 0.75},
    expect={"Spearman": at_most(-0.9), "last / first": at_most(0.05)})
def collapse(runs):
    return {"Spearman": worst(runs, spearman), "last / first": worst(runs, end_over_start)}


@cos.claim("c03_collapse_with_depth",
    says="NC1 after M^(1/2) falls far below that of the data (last and smallest value over the first input's)",
    paper="curves, no number", expect={"last / first": at_most(0.05), "least / first": at_most(0.05)})
def cos_collapse(runs):
    least = [trusted(runs, "nc1/projected", **row).min() / trusted(runs, "nc1/input", **row)[0] for row in rows(runs)]
    return {"last / first": worst(runs, end_over_start), "least / first": float(max(least))}


@relu.claim("c03b_collapse_to_classes_that_test_data_share", also=[cos],
    says="NC1 after M^(1/2) falls to at most a twentieth of the first input's, and the predictor recognises the "
    "classes of test data (accuracy, scaled to 0 at chance and 1 without errors)", origin="ours",
    expect={"last / first": at_most(0.05), "test accuracy": at_least(0.5)})
def collapse_to_classes(runs):
    def known(runs, row):
        chance = 1 / class_count(runs, row)
        return (runs.final("accuracy/test", **row) - chance) / (1 - chance)

    return {"last / first": worst(runs, end_over_start), "test accuracy": worst(runs, known, pick=min)}


@relu.claim("c04_exponential_decay", also=[cos],
    says="NC1 after M^(1/2) falls exponentially with depth (line through ln NC1 against the layer)",
    paper="curves on a logarithmic axis, no number", expect={"R²": at_least(0.9), "slope": below(0)})
def exponential(runs):
    return worst_line(runs, lambda values: values)


@cos.claim("c04b_exponential_before_the_floor",
    says="NC1 falls exponentially as long as each layer lowers it by a fifth (line through ln NC1 against the layer)",
    origin="ours", expect={"R²": at_least(0.9), "slope": below(0)}, within=(float("-inf"), 1))
def exponential_at_first(runs):
    return worst_line(runs, before_the_floor)


@relu.claim("c05_class_means_form_a_simplex", also=[cos],
    says="NC2 after M^(1/2) in the last layer is less than half that of the data (largest ratio)",
    paper="curves, no number", expect=below(0.5))
def simplex(runs):
    return worst(runs, lambda runs, row: end_over_start(runs, row, "nc2_cosines"))


@relu.claim("c06_gram_matrix_is_that_of_a_simplex",
    says="in the last layer, centred cosines after M^(1/2) are 1 within classes and -1/(K-1) between classes (means)",
    paper="simplex ETF in the final column", where="Figs. 1 and 6",
    expect={"within": at_least(0.95), "between, distance": at_most(0.01)})
@cos.claim("c06_gram_matrix_is_that_of_a_simplex",
    says="in the last layer, centred cosines after M^(1/2) are 1 within classes and -1/(K-1) between classes (means)",
    paper="simplex ETF in the final column", where="Figs. 1 and 5",
    expect={"within": at_least(0.95), "between, distance": at_most(0.01)})
def gram_matrix(runs):
    def off(runs, row):
        return abs(trusted(runs, "gram_between/projected", **row)[-1] + 1 / (class_count(runs, row) - 1))

    return {"within": worst(runs, lambda runs, row: trusted(runs, "gram_within/projected", **row)[-1], pick=min),
        "between, distance": worst(runs, off)}


@relu.claim("c06b_gram_matrix_is_near_that_of_a_simplex", also=[cos],
    says="in the last layer after M^(1/2), the Gram matrix of centred cosines is that of a simplex (largest relative "
    "error; a planar decagon has 1.87), and the class means form a simplex (NC2; a simplex has 0)",
    paper="simplex ETF in the final column", expect={"Gram matrix": at_most(0.3), "NC2": at_most(0.1)})
def near_a_simplex(runs):
    return {"Gram matrix": worst(runs, lambda runs, row: trusted(runs, "gram_error/projected", **row)[-1]),
        "NC2": worst(runs, lambda runs, row: trusted(runs, "nc2_cosines/projected", **row)[-1])}


@relu.draw(cols=6, size=(14, 7.8))
@cos.draw(cols=6, size=(14, 3.2))
def panels(runs, axes):
    figure = axes[0, 0].figure
    for axis in axes.flat:
        axis.remove()
    chosen = rows(runs)
    figure.set_size_inches(14, 0.6 + 2.4 * len(chosen))
    grid = figure.subplots(len(chosen), 6, squeeze=False, width_ratios=[1.5, 1.5, 1, 1, 1, 1])
    for row, places in zip(chosen, grid, strict=True):
        one = runs.where(**row)
        depth = len(trusted(one, "nc1/projected"))
        for axis, (metric, name) in zip(places, {"nc1": "NC1", "nc2_cosines": "NC2"}.items(), strict=False):
            for (stage, label), colour in zip(STAGES.items(), CATEGORIES, strict=False):
                band(axis, one.curves(f"{metric}/{stage}").loc[:depth], color=colour, label=label)
            title = f"{name}, {row['dataset']}, {row['kernel'].capitalize()} kernel"
            axis.set(title=title, yscale="log", xlabel="layer", ylabel=name)
            axis.yaxis.set_minor_formatter("")
        cosines = one.arrays("gram")[0]
        for axis, layer in zip(places[2:], np.linspace(1, depth, 4).round().astype(int), strict=True):
            axis.imshow(cosines[f"layer{layer}"], cmap="gray", vmin=-1, vmax=1, interpolation="nearest")
            axis.set(title=f"layer {layer}", xticks=[], yticks=[])
            axis.grid(visible=False)
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside lower left", ncols=3)
