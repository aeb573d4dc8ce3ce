"""Figure A.11. Labels that depend on no count: which of a hundred random words the patterns spell.

The 50 patterns that matter spell one of 50 random words of each label; 200 more patterns are fair bits. Each pattern
alone tells of the label only by chance. The direction to be found is therefore E[y x] of the true law; permuting the
labels of the samples does not change it. The maps place neurons so that distances are near 1 - cos.
"""

from featurelab.pipelines import CATEGORIES, Experiment, Recorder, at_least, at_most, band, curves, legend_below
from featurelab.pipelines.input_structure.patterns.comparison import SMALL, SWEEP
from featurelab.pipelines.input_structure.patterns.methods import PatternConfig, cost, train

PRESET = PatternConfig(problem="words", patterns=250, dim=250, size=50, steps=600, measure_every=30)

figure = Experiment(
    name="input_structure/hidden_labels", figures=("Fig. A.11",), title="A hidden word decides on the label",
    caption="Top: neurons of one seed in the plane, distances near 1 - cos. Below: means over seeds and their range.",
    laptop=PRESET,
    paper=PRESET.but(n_train=50_000, n_test=10_000, dim=500, width=300), grid={"seed": [0, 1, 2, 3, 4, 5]},
    sweep_axes=SWEEP, metric="accuracy/test", mode="max", minutes=0.2, headline=True, small=SMALL | {"words": 2},
)


@figure.trial
def run(config: PatternConfig, recorder: Recorder) -> None:
    train(config, recorder, maps=True)


figure.cost(cost)


@figure.claim("c14_neurons_find_the_mean_product", paper="clusters form; no number", within=(0, 1),
    says="two steps turn all neurons to E[y x] (mean |cos| at the start, after step 1, after step 2)",
    expect={"start": at_most(0.2), "step 1": at_least(0.8), "step 2": at_least(0.95)})
def directions(runs):
    names = {0: "start", 1: "step 1", 2: "step 2"}
    return {name: runs.at("cosine/mean_abs_cosine", step) for step, name in names.items()}


@figure.claim("c14b_and_the_network_learns", origin="ours",
    says="in at least three of four runs, the network learns labels given by hidden words (test accuracy)",
    expect=at_least(0.95), about="share", least=0.75, within=(0, 1))
def learns(runs):
    return runs.final("accuracy/test")


@figure.claim("c14c_two_clusters", paper="clusters form; no number", about="share", least=0.75,
    says="in at least three of four runs, the neurons form two opposite clusters in two steps (smaller mean cosine "
    "with a centre and cosine of the centres after step 2; rise of the first)",
    expect={"within": at_least(0.95), "between": at_most(-0.95), "rise": at_least(0.3)})
def clusters(runs):
    start, end = (min(runs.at(f"clusters/within_{i}", step) for i in (1, 2)) for step in (0, 2))
    return {"within": end, "between": runs.at("clusters/between", 2), "rise": end - start}


@figure.draw(rows=2, cols=3, size=(10, 7))
def panels(runs, axes):
    (plane,) = runs.where(seed=min(runs.values("seed"))).arrays("map")
    times = {0: "at the start", 1: "after step 1", 2: "after step 2"}
    for axis, (step, name) in zip(axes[0], times.items(), strict=True):
        axis.scatter(*plane[f"points_{step}"].T, s=9, color=CATEGORIES[0], alpha=0.6, label="neurons")
        axis.scatter(*plane[f"marks_{step}"].T, marker="x", s=60, color=CATEGORIES[1], label="± E[yx]")
        axis.set(title=name, xlim=(-1.35, 1.35), ylim=(-1.35, 1.35), aspect="equal", xticks=[], yticks=[])
    legend_below(axes[0, 1], 2, bbox_to_anchor=(0.5, -0.03))
    left, right, spare = axes[1]
    for part, style in (("train", "--"), ("test", "-")):
        curves(left, runs, f"accuracy/{part}", across="method", label=f"network, {part}", linestyle=style)
    left.set(xlabel="step", ylabel="accuracy", ylim=(0.4, 1.02))
    legend_below(left, 1)
    names = {"mean_abs_cosine": "mean |cos|", "max_cosine": "largest cos", "aligned_share": "share with |cos| > 0.9"}
    for (metric, name), colour in zip(names.items(), CATEGORIES, strict=False):
        table = runs.curves(f"cosine/{metric}").loc[[0, 1, 2]]
        band(right, table, color=colour, label=name, marker="o", markersize=4)
    right.set(xlabel="step", ylabel="neurons and E[yx]", ylim=(0, 1.03), xticks=[0, 1, 2])
    legend_below(right, 1)
    spare.remove()
