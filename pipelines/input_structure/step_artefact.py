"""Figure 2.2 and the rows "one step" and "two steps". What a classifier finds in the neurons, and what rounding adds.

The theorem's rate of step 1 is of the order of 1e-8. Neurons are then so short that all are linear where they are, and
a linear classifier on them is a threshold on one direction: right on 84.4% of the samples at best. In float32 their
outputs are rounded: each neuron becomes a step function of its own of the number of patterns, and a classifier on
standardised outputs is nearly always right, while heads trained on the outputs as they are see a constant. A rate of 1
needs no second step.

Erasing by weight decay is rounded too. At such a rate the decay's term is about 1e7 times as large as the gradient, and
what float32 leaves of w_0 is as long as before whatever the rate, and sqrt(d) times as long as one coordinate. So the
cosine with s* falls with d, as the printed ones do; at the theorem's rate it is far below them, and a rate of 4e-7,
fitted to the one at d = 100, is compared with the others.
"""

from featurelab.pipelines import CATEGORIES, Experiment, Recorder, at_least, at_most, band, bars, below, between, np
from featurelab.pipelines.input_structure.comparison import SMALL, SWEEP
from featurelab.pipelines.input_structure.methods import PatternConfig, cost, train

ROWS = {
    ("32-true", None, 100): "float32",
    ("32-true", None, 50): "float32, m = 50",
    ("64-true", None, 100): "float64",
    ("64-true", 0.1, 100): "float64, η = 0.1",
    ("64-true", 1.0, 100): "float64, η = 1",
}
AXIS = ("precision", "first_lr", "width")
LAPTOP = PatternConfig(method="two_steps", classifiers=True, steps=2, measure_every=1)
RATE = 4e-7  # of step 1, at which decay leaves about the printed cosine at d = 100: fitted, on another seed
DECAY = {
    (False, "32-true", None): "erased exactly",
    (True, "64-true", None): "by decay, float64",
    (True, "32-true", None): "by decay, float32",
    (True, "32-true", RATE): f"by decay, float32, η = {RATE:g}",
}
PRINTED = {100: 0.967, 500: 0.848, 2000: 0.560}
BY = ("as_decay", "precision", "first_lr")

figure = Experiment(
    name="input_structure/step_artefact", figures=("Fig. 2.2", "Table A.1"), part="steps",
    title="The best classifier on neurons after one step and after two",
    caption="Means over seeds, from the least to the greatest. Dotted: the best threshold. Diamonds: the paper.",
    laptop=LAPTOP, paper=LAPTOP.but(n_train=50_000, n_test=10_000, dim=500), grid={AXIS: list(ROWS), "seed": [0, 1, 2]},
    sweep_axes=SWEEP, metric="classifier/accuracy", mode="max", minutes=1.5,
    small={key: value for key, value in SMALL.items() if key not in ("width", "steps", "measure_every")},
)
decay = figure.variant(
    "erasing", figures=("Table A.1", "Table A.3"), part="one step",
    title="Neurons after step 1, erased exactly or by weight decay",
    caption="Means over seeds and their range. The rate of the last line is fitted to the paper's d = 100.",
    laptop=PatternConfig(steps=2, measure_every=1, n_train=2000, n_test=100, width=300),
    paper=PatternConfig(steps=2, measure_every=1, n_train=50_000, width=300, dim=500), minutes=0.8,
    grid={BY: list(DECAY), "dim": list(PRINTED), "seed": [0, 1, 2]}, metric="cosine/max_cosine",
    small={key: value for key, value in SMALL.items() if key not in ("steps", "measure_every")} | {"dim": [12, 16, 20]},
)


@figure.trial
def run(config: PatternConfig, recorder: Recorder) -> None:
    train(config, recorder)


figure.cost(cost)


def best(runs, step, precision="64-true", rate=None, width=100, metric="classifier/accuracy"):
    """The accuracy of the best classifier on the neurons after a step."""
    some = runs.where(precision=precision, width=width)
    some = some.where(first_lr=rate) if rate is not None else theorem(some)
    return some.at(metric, step)


def theorem(runs):
    """The trials at the theorem's rate of step 1; a missing number is not equal to itself."""
    rates = runs.values("first_lr")
    given = [rate for rate in rates if rate is not None and rate == rate]
    run_ids = set(runs.trials.run_id)
    for rate in given:
        run_ids -= set(runs.where(first_lr=rate).trials.run_id)
    return type(runs)(runs.trials[runs.trials.run_id.isin(run_ids)], runs.read, runs.load, runs.looked_at)


@figure.claim("c05_two_steps_are_enough",
    says="test accuracy of the best classifier on the neurons of step 2", paper=1.0, expect=at_least(0.98))
def two_steps(runs):
    return best(runs, 2, "32-true")


@figure.claim("c05b_it_is_the_steps", origin="ours",
    says="the same less that on initial neurons", expect=at_least(0.2))
def over_initial(runs):
    return best(runs, 2, "32-true") - best(runs, 0, "32-true")


@figure.claim("c06_second_step_improves", paper="100 against 52.2", where="Table A.1",
    says="best classifier on the neurons of step 2 less that on those of step 1, float32 and the theorem's rate",
    expect=at_least(0.15))
def second_step(runs):
    return best(runs, 2, "32-true") - best(runs, 1, "32-true")


@figure.claim("c06b_without_rounding", origin="ours",
    says="the same in float64, where nothing is rounded away", expect=at_least(0.1))
def without_rounding(runs):
    return best(runs, 2) - best(runs, 1)


@figure.claim("c06c_one_step_is_a_threshold", origin="ours",
    says="float64: the best classifier on the neurons of step 1 is the best threshold on the number of patterns",
    paper="52.2", expect=between(0.824, 0.864), within=(0, 1))
def threshold(runs):
    return best(runs, 1)


@figure.claim("c06d_a_larger_rate_needs_no_second_step", origin="ours",
    says="best classifier on the neurons of step 1 at a rate of 1, and of step 2 less it", within=(-1, 1),
    expect={"step 1": at_least(0.98), "gain": below(0.1)})
def larger_rate(runs):
    first = best(runs, 1, rate=1.0)
    return {"step 1": first, "gain": best(runs, 2, rate=1.0) - first}


def erased(runs, by, dim, kind="max_cosine"):
    as_decay, precision, rate = by
    some = runs.where(as_decay=as_decay, precision=precision, dim=dim)
    return (theorem(some) if rate is None else some.where(first_lr=rate)).at(f"cosine/{kind}", 1)


@decay.claim("c07d_exact_erasing_knows_no_dimension", origin="ours",
    says="largest cosine after step 1, erased exactly: the smallest over d", within=(-1, 1), expect=at_least(0.9),
    paper="0.967, 0.848, 0.560")
def no_dimension(runs):
    return min(erased(runs, next(iter(DECAY)), dim) for dim in runs.values("dim"))


@decay.claim("c07e_decay_in_float32_falls_with_the_dimension", paper="0.967, 0.848, 0.560", origin="ours",
    says="by weight decay in float32 at the theorem's rate: fall of the cosine from d = 100 to 500 and to 2000",
    expect={"to 500": at_least(0.05), "to 2000": at_least(0.02)})
def falls(runs):
    found = [erased(runs, (True, "32-true", None), dim) for dim in sorted(runs.values("dim"))]
    return {"to 500": found[0] - found[1], "to 2000": found[1] - found[2]}


@decay.claim("c07f_the_printed_cosines_are_rounding", paper="0.848, 0.560", origin="ours",
    says="at a rate that is fitted to d = 100, distance from the printed cosines for d = 500 and 2000",
    expect={"d = 500": at_most(0.1), "d = 2000": at_most(0.1)})
def printed(runs):
    by = (True, "32-true", RATE)
    values = sorted(runs.values("dim"))[1:]
    return {f"d = {d}": abs(erased(runs, by, dim) - PRINTED[d]) for d, dim in zip((500, 2000), values, strict=True)}


@decay.claim("c07g_float64_erases", origin="ours", within=(-1, 1),
    says="by weight decay in float64: the smallest cosine over d", expect=at_least(0.9))
def float64(runs):
    return min(erased(runs, (True, "64-true", None), dim) for dim in runs.values("dim"))


@figure.draw(size=(8.5, 3.8))
def panel(runs, axes):
    axis = axes[0, 0]
    for place, ((precision, rate, width), name) in enumerate(ROWS.items()):
        some = runs.where(precision=precision, width=width)
        some = theorem(some) if rate is None else some.where(first_lr=rate)
        table = [np.asarray(some.curves("classifier/accuracy").loc[step]) for step in (0, 1, 2)]
        places = np.arange(3) + 0.12 * (place - 2)
        bars(axis, table, places, color=CATEGORIES[place], label=name, linestyle="")
    axis.plot([1, 2], [0.522, 1.0], "D", color="#222222", markersize=6, fillstyle="none", label="paper")
    axis.axhline(1 - 0.5 * 10 / 32, color="#444444", linestyle=":", linewidth=1, label="best threshold")
    axis.set_xticks(range(3), ["initial neurons", "after step 1", "after step 2"])
    axis.set(ylabel="test accuracy, best classifier", ylim=(0.48, 1.03))
    axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))


@decay.draw(size=(8.2, 3.8))
def erasing(runs, axes):
    axis = axes[0, 0]
    dims = sorted(runs.values("dim"))
    for ((as_decay, precision, rate), name), colour in zip(DECAY.items(), CATEGORIES, strict=False):
        some = runs.where(as_decay=as_decay, precision=precision)
        some = theorem(some) if rate is None else some.where(first_lr=rate)
        table = [np.asarray(some.curves("cosine/max_cosine", dim=dim).loc[1]) for dim in dims]
        band(axis, table, dims, color=colour, label=name, marker="o", markersize=4)
    axis.plot(list(PRINTED), list(PRINTED.values()), "D", color="#222222", fillstyle="none", label="paper")
    axis.set(xscale="log", xlabel="input dimension d", ylabel="largest cosine with s* after step 1", ylim=(0, 1.05))
    axis.set_xticks(dims, [str(dim) for dim in dims])
    axis.minorticks_off()
    axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
