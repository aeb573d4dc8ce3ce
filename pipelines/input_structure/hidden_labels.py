"""Figure A.11. Labels that depend on no count: which of a hundred random words the patterns spell.

The 50 patterns that matter spell one of 50 random words of each label; 200 more patterns are fair bits. Each pattern
alone tells of the label only by chance. The direction to be found is therefore E[y x] of the true law; permuting the
labels of the samples does not change it.
"""

from featurelab.pipelines import CATEGORIES, Experiment, Recorder, at_least, at_most, band, curves
from featurelab.pipelines.input_structure.comparison import SMALL, SWEEP
from featurelab.pipelines.input_structure.methods import PatternConfig, cost, train

PRESET = PatternConfig(problem="words", patterns=250, dim=250, size=50, steps=300, measure_every=30)

figure = Experiment(
    name="input_structure/hidden_labels", figures=("Fig. A.11",), title="A hidden word decides on the label",
    caption="Left: accuracy. Right: the neurons of the first two steps. Means over seeds and their range.",
    laptop=PRESET,
    paper=PRESET.but(n_train=50_000, n_test=10_000, dim=500, width=300, steps=600), grid={"seed": [0, 1, 2]},
    sweep_axes=SWEEP, metric="accuracy/test", mode="max", minutes=0.1, headline=True, small=SMALL | {"words": 2},
)


@figure.trial
def run(config: PatternConfig, recorder: Recorder) -> None:
    train(config, recorder)


figure.cost(cost)


@figure.claim("c14_neurons_find_the_mean_product", paper="clusters form; no number", within=(0, 1),
    says="two steps turn all neurons to E[y x] (mean |cos| at the start, after step 1, after step 2)",
    expect={"start": at_most(0.2), "step 1": at_least(0.8), "step 2": at_least(0.95)})
def directions(runs):
    names = {0: "start", 1: "step 1", 2: "step 2"}
    return {name: runs.at("cosine/mean_abs_cosine", step) for step, name in names.items()}


@figure.claim("c14b_and_the_network_learns",
    origin="ours",
    says="in at least three of four runs, the network learns labels given by hidden words (test accuracy)",
    expect=at_least(0.95), about="share", least=0.75, within=(0, 1))
def learns(runs):
    return runs.final("accuracy/test")


@figure.draw(cols=2, size=(9.5, 3.6))
def panels(runs, axes):
    for part, style in (("train", "--"), ("test", "-")):
        curves(axes[0, 0], runs, f"accuracy/{part}", across="method", label=f"network, {part}", linestyle=style)
    axes[0, 0].set(xlabel="step", ylabel="accuracy", ylim=(0.45, 1.02))
    axes[0, 0].legend(loc="lower right")
    names = {"mean_abs_cosine": "mean |cos|", "max_cosine": "largest cos", "aligned_share": "share with |cos| > 0.9"}
    for (metric, name), colour in zip(names.items(), CATEGORIES, strict=False):
        table = runs.curves(f"cosine/{metric}").loc[[0, 1, 2]]
        band(axes[0, 1], table, color=colour, label=name, marker="o", markersize=4)
    axes[0, 1].set(xlabel="step", ylabel="neurons and E[yx]", ylim=(0, 1.03), xticks=[0, 1, 2])
    axes[0, 1].legend(loc="center right")
