"""Theorems 3.22 and B.56, proposition 3.23. Networks compared with fixed features on parities.

On the structured parity of k = 9 of 40 coordinates, the aligned samples give the first step its direction, and the
network should learn what kernels and random features cannot. On the uniform parity we follow algorithm 6: neurons and
heads are signs, thresholds are uniform in (-1, 1), and neurons are frozen after the first step. With k = 2 kernels do
well too; with k = 4 there are more products of four coordinates than samples that a kernel can use here.
"""

from featurelab.pipelines import at_least, at_most, curves, legend_below
from featurelab.pipelines.gradient_features.mixture_learning import EVERY, SEEDS, SMALL, accuracy, fixed, methods, xor
from featurelab.pipelines.gradient_features.training import FeatureConfig

PARITY = FeatureConfig(problem="parity", dim=40, size=9, n_train=4000)
UNIFORM = FeatureConfig(problem="uniform", method="frozen", dim=31, size=2, n_train=10_000, width=256, steps=800,
    kernel_samples=2000)
UNIFORM_METHODS = ["frozen", "permuted_first", "kernels"]

structured = xor.variant(
    "train_parity", figures=("Thm. 3.4", "Thm. 3.22", "Prop. 3.23"), title="Test accuracy on a structured parity",
    laptop=PARITY,
    paper=PARITY.but(dim=80, n_train=40_000, n_test=20_000, width=2000, steps=3000, kernel_samples=16_000),
    grid={"method": EVERY, "seed": [0, 1, 2]}, paper_grid=None, minutes=1.8, small=SMALL | {"dim": 12, "size": 3},
    headline=True,
)
uniform = xor.variant(
    "train_uniform", figures=("Thm. B.56", "Algorithm 6"), title="Test accuracy on the uniform sparse parity",
    laptop=UNIFORM,
    paper=UNIFORM.but(dim=35, size=4, n_train=1_000_000, n_test=20_000, width=4000, steps=20_000,
        kernel_samples=16_000), grid={"method": UNIFORM_METHODS, "seed": SEEDS}, paper_grid=None, minutes=1,
    small=SMALL | {"dim": 7, "size": 2},
)

uniform_four = uniform.variant(
    "train_uniform_4", figures=("Thm. B.56", "Algorithm 6"), part="k = 4",
    title="Test accuracy on the uniform sparse parity of four coordinates",
    laptop=UNIFORM.but(dim=21, size=4, n_train=100_000, width=2048, steps=2000, measure_every=500), minutes=5,
    small=SMALL | {"dim": 9, "size": 4},
)


@structured.claim("c19_network_learns_the_parity",
    says="the network learns the structured parity, and the best of all fixed features at its best ridge does not "
    "(test accuracies)", paper="ε against 1/2", where="Theorem 3.22, proposition 3.23; bounds set after the fact",
    within=(0, 1), expect={"network": at_least(0.95), "fixed": at_most(0.7)})
def learns(runs):
    return {"network": accuracy(runs, "full"), "fixed": accuracy(runs, "kernels")}


@structured.claim("c19b_it_is_the_first_step", says="on the structured parity, the network beats one whose first step "
    "saw permuted labels, and one without a first step (medians of the margins in test accuracy)", origin="ours",
    about="median", within=(-1, 1), expect={"permuted": at_least(0.3), "without": at_least(0.3)})
def first_step(runs):
    others = {"permuted": "permuted_first", "without": "no_first_step"}
    return {name: accuracy(runs, "full") - accuracy(runs, method) for name, method in others.items()}


@structured.claim("c19c_one_step_is_enough",
    says="on the structured parity, a network whose neurons are frozen after the first step beats the best of all "
    "fixed features by 0.2 in at least three of four runs (margin in test accuracy)", paper="ε against 1/2",
    where="Theorem 3.4", about="share", least=0.75, within=(-1, 1), expect=at_least(0.2))
def one_step(runs):
    return accuracy(runs, "frozen") - accuracy(runs, "kernels")


@uniform.claim("c20_one_step_and_the_heads", also=[uniform_four], says="one step and training of the heads are enough "
    "to learn the uniform parity in at least three of four runs (test accuracy, hinge loss)", paper="≤ ε",
    about="share", least=0.75, expect={"accuracy": at_least(0.99), "hinge": at_most(0.05)})
def one_step_of_signs(runs):
    return {"accuracy": accuracy(runs, "frozen"), "hinge": runs.final("loss/test", method="frozen")}


@uniform.claim("c20b_random_features_do_not", also=[uniform_four],
    says="features of the untrained network do not learn the uniform parity (test accuracy at the best ridge)",
    paper="d^Ω(k) for fixed features", where="Section 3.4.2", expect=at_most(0.85), within=(0, 1))
def random_features(runs):
    return fixed(runs, "random_features")


@uniform.claim("c20c_kernels_do_as_well_at_degree_two",
    says="kernels of 2000 samples learn the uniform parity of degree two as well in at least three of four runs (best "
    "test accuracy of the quadratic, the Gaussian and the arc-cosine kernel)", origin="ours", expect=at_least(0.99),
    about="share", least=0.75, within=(0, 1), controls=["permuted_labels"])
def kernels_too(runs):
    return max(fixed(runs, name) for name in ("quadratic", "rbf", "arc_cosine"))


@uniform_four.claim("c20d_kernels_do_not_at_degree_four",
    says="kernels of 2000 samples do not learn the uniform parity of degree four (best test accuracy of the quadratic, "
    "the Gaussian and the arc-cosine kernel)", origin="ours", expect=at_most(0.85), within=(0, 1), controls=())
def kernels_fail(runs):
    return kernels_too(runs)


@structured.draw(cols=2, size=(10.5, 3.8))
def panels(runs, axes):
    methods(axes[0, 0], runs)
    trained = runs.where(method="full")
    for part, style in (("train", "--"), ("test", "-")):
        curves(axes[0, 1], trained, f"accuracy/{part}", across="method", label=f"network, {part}", linestyle=style)
    axes[0, 1].set(xlabel="step", ylabel="accuracy", ylim=(0.45, 1.02))
    legend_below(axes[0, 1], 2)


@uniform.draw(cols=2, size=(10.5, 3.8))
def uniform_panels(runs, axes):
    networks = {"frozen": "one step, then heads", "permuted_first": "permuted first step, all trained"}
    methods(axes[0, 0], runs, networks)
    trained = runs.where(method="frozen")
    for part, style in (("train", "--"), ("test", "-")):
        curves(axes[0, 1], trained, f"loss/{part}", across="method", label=f"hinge loss, {part}", linestyle=style)
    axes[0, 1].set(xlabel="step", ylabel="hinge loss", ylim=(0, None))
    legend_below(axes[0, 1], 2)
