"""Figures F.2 and F.9 to F.13. The trade-off with MoCo v2, SimSiam and NNCLR.

Each method trains on the target's set alone and on the whole union, and on the controls of `unions` for the number of
pictures and of updates. The paper has curves for three groups of sets and five shares of labels; in several panels the
average falls at the last union, and in those of Fer2013 the target's accuracy first rises.

At laptop scale hidden layers have batch normalisation, without which MoCo collapses, and queues hold a quarter of the
target's pictures: in a longer one each picture would be its own negative. The paper preset has the settings of the
authors' program.
"""

from featurelab.pipelines import CATEGORIES, above, at_least, legend_below, np
from featurelab.pipelines.contrastive_tradeoff.pretrained import unions
from featurelab.pipelines.contrastive_tradeoff.pretrained.pretraining import METHODS, UnionConfig
from featurelab.pipelines.contrastive_tradeoff.pretrained.unions import UNIONS, Unions, grid_of, trade_off_of

NAMES = {method: METHODS[method] for method in ("moco", "simsiam", "nnclr")}
# method, learning rate, epochs of warm-up, temperature and the probe's rate in the authors' program
AUTHORS = [("moco", 0.06, 0, 0.1, 5.0), ("simsiam", 0.03, 10, 0.1, 1.0), ("nnclr", 0.03, 10, 0.5, 1.0)]
DESKTOP_METHODS = [("moco", 0.06, 0, 0.1), ("simsiam", 0.03, 1, 0.1), ("nnclr", 0.03, 1, 0.5)]
figure = unions.figure.variant(
    "methods", figures=("Fig. F.2", "Fig. F.9", "Fig. F.10", "Fig. F.11", "Fig. F.12", "Fig. F.13"),
    title="The trade-off with other pre-training methods",
    caption="Accuracy on the target against the weighted average over all sets. Small: seeds; large: their mean. Lines "
    "run from the target's set to the union; other marks are the controls for the number of pictures and of updates.",
    laptop=UnionConfig(normalised=True, queue=256),
    grid={"method": list(NAMES), **grid_of(trade_off_of([UNIONS[0], UNIONS[-1]], noise=3), "union", "length")},
    paper_grid={("method", "lr", "warmup", "temperature", "probe_lr"): AUTHORS,
        **grid_of(trade_off_of(unions.PAPER_UNIONS, noise=1), "union", "length")}, minutes=3.3,
    desktop=unions.DESKTOP, desktop_minutes=12,
    desktop_grid={("method", "lr", "warmup", "temperature"): DESKTOP_METHODS,
        **grid_of(trade_off_of([unions.DESKTOP_UNIONS[0], unions.DESKTOP_UNIONS[-1]], noise=1), "union", "length")},
    reduced=f"the first set and the whole union; {unions.REPLACED}; one epoch of warm-up; {unions.REDUCED}",
    stand_in="generated pictures of 8 x 8 pixels and an MLP in place of public sets and a ResNet-18",
    small=unions.TINY | {"queue": 30},
)


def of_each(runs, measure):
    """A measurement of the trials of each method; its parts by name."""
    measured = {name: measure(runs.where(method=method)) for method, name in NAMES.items()}
    return unions.flat(measured)


@figure.claim("f2_trade_off_of_each", paper="curves of all three", where="Fig. F.2",
    says="With each method, the target's accuracy with few labels falls from its own set to the union (falls)",
    expect={name: above(0) for name in NAMES.values()})
def falls(runs):
    return of_each(runs, lambda some: unions.trade_off(some)["target falls"])


@figure.claim("f2b_average_of_each", paper="curves of all three", where="Fig. F.2",
    says="With each method, the weighted average rises from the target's set to the union (rises of accuracy)",
    expect={name: above(0) for name in NAMES.values()})
def rises(runs):
    return of_each(runs, lambda some: unions.trade_off(some)["average rises"])


@figure.claim("f2c_beyond_noise", origin="ours", where="Fig. F.2",
    says="With each method and few labels, the union is worse on the target than its set with as many pictures of "
    "noise (differences of accuracies)", expect={name: above(0) for name in NAMES.values()})
def beyond_noise(runs):
    return of_each(runs, unions.beyond_noise)


@figure.claim("f2e_beyond_length", origin="ours", where="Fig. F.2",
    says="With each method and in equally many updates, those of the union or those of the target's set, the union is "
    "worse on the target than its set alone (differences of accuracies)",
    expect={f"{name}, {length}": above(0) for name in NAMES.values() for length in unions.LENGTHS})
def beyond_length(runs):
    return of_each(runs, unions.beyond_length)


@figure.claim("f2d_each_learns", origin="ours", where="Fig. F.2", controls=("permuted_labels", "untrained"),
    says="With each method, a network of the target's set alone classifies the target with few labels (accuracies)",
    expect={name: at_least(0.65) for name in NAMES.values()})
def learns(runs):
    return of_each(runs, lambda some: Unions(some).of(Unions(some).few, Unions(some).first))


@figure.draw(cols=2, size=(10, 4.6))
def panels(runs, axes):
    for axis, metric in zip(axes[0], (Unions(runs).few, Unions(runs).many), strict=True):
        for (method, name), color in zip(NAMES.items(), CATEGORIES, strict=False):
            some = runs.where(method=method)
            own = Unions(some)

            def mean(union, length, marker, axis=axis, some=some, color=color, metric=metric):
                pair = [some.finals(values, union=union, length=length) for values in ("average", metric)]
                axis.scatter(*pair, color=color, s=8, marker=marker, alpha=0.5)
                centre = [float(np.mean(values)) for values in pair]
                axis.scatter(*centre, color=color, s=60, marker=marker)
                return centre

            line = [mean(union, "own", {own.first: "o", own.whole: "*"}.get(union, ".")) for union in own.all]
            axis.plot(*zip(*line, strict=True), color=color, linewidth=1, label=name)
            mean(own.noise, "own", "s")
            mean(own.first, "longest", "+")
            mean(own.whole, "shortest", "x")
        labels = metric.removeprefix("target/")
        axis.set(xlabel="weighted average accuracy of all sets", ylabel=f"accuracy on the target, {labels} labels")
        axis.margins(0.12)
    marks = {"o": "target's set", "*": "union", "s": "set and noise", "+": "set for as long", "x": "union in brief"}
    for marker, label in marks.items():
        axes[0, 1].scatter([], [], color="gray", marker=marker, label=label)
    legend_below(axes)
