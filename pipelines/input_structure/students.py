"""Figures 2.4 = A.18, A.19, A.20, A.21. Students learn a teacher's labels on real inputs, and on Gaussian ones.

A student is trained on a mixture of original inputs and injected ones, a share alpha, all with the teacher's labels;
another one on the original inputs alone. Accuracy is the agreement with the teacher on test inputs: of the original
kind, of the injected kind, and of the mixture of both in the same shares. The paper says "learns well over the CIFAR10
part ... but learns slower with worse accuracy on the Gaussian part", and that the mixture is below training on original
inputs alone; on MNIST the trend is weak for FC(9) and clear for FC(50).

Is it the structure of inputs? A teacher that was never trained is harder to follow on Gaussians too, so that we compare
with its gap (ours). Gaussians with the covariance of the originals have some structure.
"""

from featurelab.pipelines import (
    CATEGORIES, Experiment, Field, Recorder, above, at_least, at_most, band, choice, data, fit, learners, legend_below,
    loguniform, np, probes, torch,
)
from featurelab.pipelines.input_structure.teachers import (
    TeacherConfig, injected, label_spread, labels, network, original, student_cost, taught,
)

WIDE = 50


class StudentConfig(TeacherConfig):
    alpha: float = Field(0.5, gt=0, lt=1, description="share of injected inputs in the student's data")
    width: int = Field(9, ge=1, description="hidden units, or filters of the first stage, of the student")


PRESET = StudentConfig()
# at the digits' rate of 0.01, the loss of wide students rises on the way
PAPER = PRESET.but(
    dataset="mnist", n_train=60_000, n_test=10_000, lr=0.001, teacher_steps=4700, steps=9400, measure_every=94,
)
REAL = [("mnist", 9, 9), ("cifar10", 5, 9), ("svhn", 2, 8)]  # data, widths of teacher and student
CELLS = [("gaussian", "trained", 9), ("none", "trained", 9), ("gaussian", "untrained", 9),
    ("gaussian", "trained", WIDE), ("none", "trained", WIDE)]
SMALL = {"n_train": 40, "batch_size": 20, "teacher_steps": 4, "steps": 6, "measure_every": 3}

figure = Experiment(
    name="input_structure/students", figures=("Fig. 2.4", "Fig. A.18", "Fig. A.21"),
    published={"Fig. 2.4": "Fig. 4"},
    title="Students of a teacher on original and on Gaussian inputs",
    caption="Agreement with the teacher on test inputs; means over seeds and their range.", laptop=PRESET, paper=PAPER,
    grid={("injected", "teacher", "width"): CELLS, "seed": range(6)},
    paper_grid={("dataset", "teacher_width", "width"): [*REAL, ("mnist", 9, WIDE)],
        ("injected", "teacher"): [("gaussian", "trained"), ("none", "trained"), ("gaussian", "untrained")],
        "seed": [0, 1, 2]},
    sweep_axes={"lr": loguniform(1e-3, 0.1), "width": choice(5, 9, 20, 50), "weight_decay": loguniform(1e-6, 1e-2)},
    metric="accuracy/mixture", mode="max", minutes=1.4, small=SMALL, needs=("cifar10", "mnist", "svhn"),
    desktop=PAPER, desktop_minutes=5, desktop_grid={("injected", "teacher", "width"): CELLS, "seed": range(3)},
    reduced="MNIST alone, as in the paper",
    stand_in="scikit-learn's 8x8 digits with FC(9), FC(50) replace MNIST, and ResNets on CIFAR-10 and SVHN",
)
structured = figure.variant(
    "students_structured", figures=("Fig. A.19",), title="Students on injected inputs with more structure",
    grid={"injected": ["gaussian", "covariance"], "seed": range(6)},
    paper_grid={("dataset", "teacher_width", "width"): REAL[1:], "injected": ["gaussian", "tiny_imagenet"],
        "seed": [0, 1, 2]}, needs=("cifar10", "svhn", "tiny_imagenet"), minutes=0.6,
    desktop=PAPER, desktop_minutes=3, desktop_grid={"injected": ["gaussian", "covariance"], "seed": range(3)},
    reduced="MNIST with FC(9) in place of ResNets on CIFAR-10 and SVHN, Gaussians with its covariance in place of Tiny "
    "ImageNet",
    stand_in="Gaussians with the covariance of scikit-learn's digits replace Tiny ImageNet",
)
shares = figure.variant(
    "students_shares", figures=("Fig. A.20",), title="Students at other shares of Gaussian inputs",
    grid={"alpha": [0.25, 0.5, 0.75], "seed": range(6)}, paper_grid={"alpha": [0.25, 0.5, 0.75], "seed": [0, 1, 2]},
    paper=PAPER.but(dataset="cifar10", n_train=50_000, teacher_width=5), needs=("cifar10",), minutes=0.8,
    desktop=PAPER, desktop_minutes=3, desktop_grid={"alpha": [0.25, 0.5, 0.75], "seed": range(3)},
    reduced="MNIST with FC(9) in place of ResNet(9) on CIFAR-10",
    stand_in="scikit-learn's 8x8 digits with FC(9) replace CIFAR-10 with ResNet(9)",
)


@figure.trial
def run(config: StudentConfig, recorder: Recorder) -> None:
    c, task = config, original(config)
    x, z = task.train[0], task.test[0]
    ratio = c.alpha / (1 - c.alpha)
    u, v = (injected(c, x, max(1, round(ratio * len(part))), name) for part, name in ((x, "train"), (z, "test")))
    teacher = taught(c, recorder, task, u)
    recorder.log({"label_spread": label_spread(labels(teacher, u))}, step=0)
    inputs = x if c.injected == "none" else torch.cat([x, u])
    parts = {"original": z, "injected": v, "mixture": torch.cat([z, v])}
    tests = {name: (part, labels(teacher, part)) for name, part in parts.items()}
    mixture = data.TensorData((inputs, labels(teacher, inputs)), tests["original"], batch_size=c.batch_size,
        order_seed=c.streams.order, dtype=c.dtype, name=f"{c.dataset}_{c.injected}")
    # a seed of its own, or the student would begin with the teacher's initial weights, cut to another width
    net = network(c, c.width, data.stream(c.streams.init, "student").integers(2**62).item())
    learner = learners.Supervised(net, loss="cross_entropy", optimizer=learners.adam(c.lr, c.weight_decay))
    watching = probes.LossProbe(tests, c.measure_every)
    fit(learner, mixture, c, recorder, steps=c.steps, probes=[watching])


@figure.cost
def cost(config: StudentConfig):
    return student_cost(config, config.width)


def students(runs):
    """The trials of each data set's own student, whose width is near its teacher's."""
    own = [runs.where(width=width) for width in runs.values("width") if width != WIDE]
    return [some.where(dataset=name) for some in own for name in some.values("dataset")]


def last(curve):
    return float(curve.iloc[-1])


def area(curve):
    """The mean of a curve over steps, by the trapezoidal rule."""
    return float(np.average((curve.values[1:] + curve.values[:-1]) / 2, weights=np.diff(curve.index)))


def accuracy(runs, part, value=last, **where):
    chosen = {"injected": "gaussian", "teacher": "trained"} | where
    return value(runs.curve(f"accuracy/{part}", **chosen))


def gap(runs, value=last, **where):
    """The accuracy on original inputs less that on injected ones."""
    return accuracy(runs, "original", value, **where) - accuracy(runs, "injected", value, **where)


def both(measure):
    """A measure of a curve's value: of its mean over training, and of its end."""
    return {"over training": measure(area), "at the end": measure(last)}


@figure.claim("c19_slower_and_worse_on_gaussians", paper="learns slower with worse accuracy on the Gaussian part",
    says="students are less accurate on Gaussian inputs than on original ones (difference over training, at the end)",
    expect={"over training": at_least(0.10), "at the end": at_least(0.05)}, within=(-1, 1))
def worse(runs):
    return both(lambda value: min(gap(some, value) for some in students(runs)))


@figure.claim("c19b_beyond_an_untrained_teacher", origin="ours", within=(-2, 2),
    says="the gap between original and Gaussian inputs at the end is larger for a trained teacher than for an "
    "untrained one (difference)", expect=at_least(0.03))
def beyond(runs):
    return min(gap(some) - gap(some, teacher="untrained") for some in students(runs))


@figure.claim("c20_mixture_averages_its_parts", also=[structured, shares], kind="identity", origin="ours",
    says="accuracy on the mixture is the average of those on its parts by their sizes, so that it is below the "
    "original part's wherever the injected part's is (largest distance)",
    paper="accuracy on the whole mixture is lower than that of training on the original data", expect=at_most(0.003))
def average(runs):
    distances = []
    for alpha in runs.values("alpha"):
        chosen = runs.where(alpha=alpha)
        whole, one, other = (chosen.curves(f"accuracy/{part}").to_numpy()
            for part in ("mixture", "original", "injected"))
        distances.append(np.abs(whole - (1 - alpha) * one - alpha * other).max())
    return float(max(distances))


@figure.claim("c20b_below_original_only", where="Figs. 2.4, A.21", within=(-1, 1),
    paper="accuracy on the whole mixture is lower than that of training on the original data",
    says="wide students (m = 50) are less accurate on the mixture than students trained on original inputs alone are "
    "on these (difference)", expect=at_least(0.10))
def below_original_only(runs):
    wide = runs.where(width=WIDE)
    return accuracy(wide, "original", injected="none") - accuracy(wide, "mixture")


@figure.claim("c20c_original_part_like_original_only", within=(-1, 1),
    paper="accuracy similar to directly training on the original data", says="students of the teacher's width are as "
    "accurate on original inputs as those trained on these alone (difference)", expect=at_least(-0.05))
def like_original_only(runs):
    return min(accuracy(some, "original") - accuracy(some, "original", injected="none") for some in students(runs))


@figure.claim("c21_larger_gap_of_larger_students", where="Fig. A.21", within=(-2, 2),
    paper="the separation is more significant than for m = 9",
    says="the gap between original and Gaussian inputs at the end is larger for m = 50 than for m = 9 (difference)",
    expect=at_least(0.10))
def larger(runs):
    return gap(runs.where(width=WIDE)) - gap(students(runs)[0])


def with_structure(runs):
    """The kind of injected inputs that is not Gaussian."""
    (kind,) = set(runs.values("injected")) - {"gaussian"}
    return kind


@structured.claim("c19c_structure_helps", within=(-1, 1),
    paper="the performance on the Tiny ImageNet part is higher than that on the Gaussian part",
    says="students are more accurate at the end on injected inputs with structure than on Gaussian ones (difference)",
    expect=above(0))
def structure_helps(runs, value=last):
    kind = with_structure(runs)
    return min(accuracy(some, "injected", value, injected=kind) - accuracy(some, "injected", value)
        for some in students(runs))


@structured.claim("c19d_structure_helps_early", within=(-1, 1),
    origin="ours", says="students are more accurate over training on injected inputs with structure than on Gaussian "
    "ones (difference of means over steps)", expect=above(0))
def structure_helps_early(runs):
    return structure_helps(runs, area)


@structured.claim("c19e_less_than_originals", within=(-1, 1),
    paper="though not as helpful as that on the original data",
    says="students are less accurate at the end on injected inputs with structure than on original ones (difference)",
    expect=above(0))
def less_than_originals(runs):
    return min(gap(some, injected=with_structure(runs)) for some in students(runs))


@shares.claim("c20d_same_trend_at_every_share", within=(-1, 1), paper="roughly the same trend for different alpha",
    says="students are less accurate on Gaussian inputs than on original ones at every share, over training and at its "
    "end (least difference)", expect={"over training": above(0), "at the end": above(0)})
def every_share(runs):
    return both(lambda value: min(gap(runs, value, alpha=alpha) for alpha in runs.values("alpha")))


def follow(axis, runs, title):
    """Draw the accuracy on each part against the step."""
    for part, colour in zip(("original", "injected", "mixture"), CATEGORIES, strict=False):
        band(axis, runs.curves(f"accuracy/{part}"), color=colour, label=part)
    axis.set(title=title, xlabel="step", ylabel="agreement with the teacher", ylim=(0, 1.02))


@figure.draw(cols=3, size=(12, 4.2))
def panels(runs, axes):
    settings = [(9, "trained", "m = 9"), (WIDE, "trained", f"m = {WIDE}"), (9, "untrained", "m = 9, untrained teacher")]
    for axis, (width, teacher, title) in zip(axes[0], settings, strict=True):
        some = runs.where(width=width, teacher=teacher, dataset=runs.values("dataset")[0])
        follow(axis, some.where(injected="gaussian"), title)
        if teacher == "trained":
            alone = some.where(injected="none").curves("accuracy/original")
            band(axis, alone, color=CATEGORIES[3], linestyle="--", label="original, trained on these alone", shade=0.1)
    legend_below(axes)


@structured.draw(cols=2, size=(8.5, 4.2))
def structures(runs, axes):
    name = runs.values("dataset")[0]
    for axis, kind in zip(axes[0], runs.values("injected"), strict=True):
        follow(axis, runs.where(injected=kind, dataset=name), f"{name}, injected: {kind}")
    legend_below(axes)


@shares.draw(cols=3, size=(11, 4.2))
def each_share(runs, axes):
    for axis, alpha in zip(axes[0], sorted(runs.values("alpha")), strict=True):
        follow(axis, runs.where(alpha=alpha), f"α = {alpha:g}")
    legend_below(axes)
