"""Figure A.22. Test loss against width: of teachers on real inputs, and of students on Gaussian ones.

(a) Networks FC(m) of many widths learn the original data; the paper takes the size of its teacher, 9, from the minimum
before the curve rises. (b) to (d) A teacher of a given width labels Gaussian inputs, and students of many widths learn
these labels: the minimum should lie at the teacher's width, and move to the right with it.

Networks of all widths are trained side by side on the same batches. On scikit-learn's digits the loss rises only for
noisy labels or few samples, so that (a) has 15% of 1,000 training labels changed at random. The minimum of a curve is
the first width after which the loss rises by 5% before it falls below that width's.
"""

from typing import Literal

from featurelab.pipelines import (
    CATEGORIES, Experiment, Field, Recorder, above, at_least, at_most, band, bound_level, choice, data, fit, learners,
    legend_below, loguniform, nets, np, probes, torch,
)
from featurelab.pipelines.input_structure.teachers import (
    TeacherConfig, injected, labels, network, original, student_cost, taught,
)

RISE = 1.05
CASES = {("original", 9): "(a) original inputs", ("gaussian", 3): "(b) Gaussian inputs, teacher FC(3)",
    ("gaussian", 9): "(b) Gaussian inputs, teacher FC(9)", ("gaussian", 30): "(c) Gaussian inputs, teacher FC(30)"}
BIG = [("original", 9), ("gaussian", 9), ("gaussian", 50), ("gaussian", 500)]


class WidthConfig(TeacherConfig):
    inputs: Literal["original", "gaussian"] = Field("original", description="what is learned: original data or labels")
    widths: tuple[int, ...] = Field((1, 2, 3, 5, 7, 9, 12, 16, 24, 30, 40, 60, 80), description="of the networks")
    n_train: int = Field(1000, ge=2, description="original training inputs")
    n_gaussian: int = Field(4000, ge=2, description="Gaussian training inputs; half as many for testing")
    label_noise: float = Field(0.15, ge=0, le=1, description="share of original training labels that are changed")
    steps: int = Field(600, ge=1, description="optimiser steps of the networks")
    measure_every: int = Field(300, ge=1, description="steps between measurements")


PRESET = WidthConfig()
MNIST = PRESET.but(dataset="mnist", n_train=60_000, n_test=10_000, n_gaussian=60_000, label_noise=0.0, lr=0.001,
    teacher_steps=4700, steps=9400, measure_every=940)

figure = Experiment(
    name="input_structure/width_curves", figures=("Fig. A.22",),
    title="Test loss against width, of teachers and of students",
    caption="Means over seeds and their range. The paper has teachers of widths 9, 50 and 500.", laptop=PRESET,
    paper=MNIST.but(widths=(1, 2, 3, 5, 7, 9, 12, 16, 24, 40, 80, 160, 320, 640, 1000)),
    grid={("inputs", "teacher_width"): list(CASES), "seed": range(6)},
    paper_grid={("inputs", "teacher_width"): BIG, "seed": [0, 1, 2, 3, 4]},
    desktop=MNIST.but(measure_every=4700), desktop_minutes=16,
    desktop_grid={("inputs", "teacher_width"): list(CASES), "seed": range(5)},
    reduced="teachers FC(3), FC(9), FC(30) in place of FC(9), FC(50), FC(500), and widths up to 80 in place of 1,000",
    sweep_axes={"lr": loguniform(1e-3, 0.1), "n_train": choice(300, 600, 1000), "weight_decay": loguniform(1e-6, 1e-2)},
    minutes=1, needs=("mnist",), controls=("permuted_labels", "untrained", "untrained_teacher"),
    small={"n_train": 40, "n_gaussian": 40, "widths": (1, 3, 9, 16), "batch_size": 20, "teacher_steps": 4, "steps": 6,
        "measure_every": 3},
    stand_in="1,000 of scikit-learn's 8x8 digits with 15% noisy labels replace MNIST, teachers FC(3), FC(9), FC(30) "
    "replace FC(9), FC(50), FC(500)",
)


@figure.trial
def run(config: WidthConfig, recorder: Recorder) -> None:
    c, base = config, original(config)
    if c.inputs == "original":
        train, test = (base.labelled[0], noisy(base.labelled[1], c)), base.test
    else:
        u, v = (injected(c, base.train[0], n, part)
            for n, part in ((c.n_gaussian, "train"), (c.n_gaussian // 2, "test")))
        teacher = taught(c, recorder, base, u)
        train, test = ((x, labels(teacher, x)) for x in (u, v))
    task = data.TensorData(train, test, batch_size=c.batch_size, order_seed=c.streams.order, dtype=c.dtype,
        name=f"{c.dataset}_{c.inputs}")
    seeds = data.stream(c.streams.init, "widths").integers(2**62, size=len(c.widths))
    net = nets.ParallelWidths([network(c, width, seed) for width, seed in zip(c.widths, seeds.tolist(), strict=True)])

    def follow(module, _):
        values: dict[str, float] = {}
        for part, (x, y) in {"train": task.train, "test": task.test}.items():
            for width, loss, share in zip(c.widths, *scores(module, x, y), strict=True):
                values |= {f"loss/{part}/{width}": loss, f"accuracy/{part}/{width}": share}
        values["loss/test"] = min(values[f"loss/test/{width}"] for width in c.widths)
        return values

    learner = learners.Supervised(net, loss=learners.stacked_cross_entropy,
        optimizer=learners.adam(c.lr, c.weight_decay))
    fit(learner, task, c, recorder, steps=c.steps, probes=[probes.Measure(follow, c.measure_every)])


def scores(module, x, y):
    """The cross-entropy and the accuracy of each network."""
    with torch.no_grad():
        losses, right = torch.zeros((), dtype=torch.float64), torch.zeros((), dtype=torch.float64)
        for part, target in zip(x.split(2048), y.split(2048), strict=True):
            outputs, target = module(part.to(module.device)).double().cpu(), target[:, None]
            losses = losses - outputs.log_softmax(2).gather(2, target[:, :, None].expand(*outputs.shape[:2], 1)).sum((0,
                2))
            right = right + (outputs.argmax(2) == target).double().sum(0)
        return (losses / len(x)).tolist(), (right / len(x)).tolist()


def noisy(y, config: WidthConfig):
    """Return labels of which a share is changed, each to one of the nine others."""
    chance = data.stream(config.streams.data, "label noise")
    changed = torch.from_numpy(chance.permutation(len(y))[: round(config.label_noise * len(y))])
    y = y.clone()
    y[changed] = (y[changed] + torch.from_numpy(chance.integers(1, 10, size=len(changed)))) % 10
    return y


@figure.cost
def cost(config: WidthConfig):
    return student_cost(config, sum(config.widths))


def losses(runs, inputs, teacher_width):
    """The widths, and the final test losses at them."""
    widths = runs.values("widths")[0]
    chosen = {"inputs": inputs, "teacher_width": teacher_width}
    return list(widths), np.array([runs.final(f"loss/test/{width}", **chosen) for width in widths])


def first_minimum(widths, curve):
    """The first width after which the loss rises by 5% before it falls below that width's; the best one if none is."""
    for place, loss in enumerate(curve):
        later = next((other for other in curve[place + 1 :] if other < loss or other > RISE * loss), loss)
        if later > loss:
            return widths[place]
    return widths[int(np.argmin(curve))]


def minimum(runs, case):
    return first_minimum(*losses(runs, *case))


def peak(curve):
    """ln of the factor by which the loss rises to a peak or falls from it, the smaller one, at the highest peak."""
    logs = np.log(curve)
    return max(logs[j] - max(logs[:j].min(), logs[j + 1 :].min()) for j in range(1, len(logs) - 1))


def given(runs):
    """The cases of the grid, the original data first, then teachers by their width."""
    cases = [("gaussian", width) for width in sorted(runs.where(inputs="gaussian").values("teacher_width"))]
    return [("original", runs.where(inputs="original").values("teacher_width")[0]), *cases]


@figure.claim("c22_double_descent", where="Fig. A.22(a)", paper="a double descent curve (no number)", seeds=5,
    says="on original inputs the loss rises past a minimum with width and falls again (ln of the smaller factor)",
    expect=at_least(0.1))
def double_descent(runs):
    return float(peak(losses(runs, *given(runs)[0])[1]))


@figure.claim("c23_minimum_at_the_teacher", where="Fig. A.22(b)-(d)", seeds=5,
    paper="minimums roughly the same, larger for larger teachers",
    says="the minimum of students lies at the teacher's width (|ln of their ratio|, at most ln 1.5)",
    expect={"first teacher": at_most(0.406), "second teacher": at_most(0.406), "third teacher": at_most(0.406)})
def at_the_teacher(runs):
    names = ("first teacher", "second teacher", "third teacher")
    return {name: abs(float(np.log(minimum(runs, case) / case[1])))
        for name, case in zip(names, given(runs)[1:], strict=True)}


@figure.claim("c23b_moves_with_the_teacher", where="Fig. A.22(b)-(d)", seeds=5,
    paper="the local minimum becomes larger when the teacher gets larger",
    says="the minimum of students moves to the right with the teacher's width (ln of the ratio of neighbours)",
    expect={"second over first": above(0), "third over second": above(0)})
def moves(runs):
    first, second, third = (float(np.log(minimum(runs, case))) for case in given(runs)[1:])
    return {"second over first": second - first, "third over second": third - second}


@figure.claim("c23c_same_minimum_on_both", where="Fig. A.22(a), (b)", seeds=5,
    paper="the local minimums of the two U-shapes are roughly the same", says="minima on original inputs and of "
    "students of the teacher FC(9) are at the same width (|ln of their ratio|, at most ln 1.5)", expect=at_most(0.406))
def same_minimum(runs):
    return abs(float(np.log(minimum(runs, given(runs)[0]) / minimum(runs, ("gaussian", 9)))))


@figure.draw(cols=4, size=(14, 3.5))
def panels(runs, axes):
    for axis, (inputs, teacher_width) in zip(axes[0], given(runs), strict=True):
        some = runs.where(inputs=inputs, teacher_width=teacher_width)
        widths = some.values("widths")[0]
        for part, colour in (("train", CATEGORIES[5]), ("test", CATEGORIES[0])):
            table = np.array([some.finals(f"loss/{part}/{width}") for width in widths])
            band(axis, table, np.array(widths), color=colour, label=part, marker="o", markersize=3)
        title = "original inputs" if inputs == "original" else f"Gaussian inputs, teacher FC({teacher_width})"
        axis.set(title=title, xscale="log", xlabel="width", ylim=(0, None))
        axis.set_xticks([1, 3, 9, 30, 80], ["1", "3", "9", "30", "80"])
        if inputs == "gaussian":
            bound_level(axis, teacher_width, "teacher's width", vertical=True)
    axes[0, 0].set_ylabel("cross-entropy")
    legend_below(axes)
