"""Tables 6.1 to 6.3 and E.1 to E.6, Figure 6.4. Printed averages agree with their rows, and show the gains claimed.

Nothing is trained: the tables need five benchmarks of up to 587,000 pictures and a ResNet-50 for each of 25 algorithms.
We check what the printed cells say by themselves, and what the text says about them.
"""

from featurelab.pipelines import (
    CATEGORIES, Config, Cost, Experiment, Field, Recorder, above, at_most, bound_level, np, null_level, uniform,
)
from featurelab.pipelines.nuclear_norm_dg.printed import ALGORITHMS, DATASETS, TABLES

BASES = tuple(ALGORITHMS.values())
AVERAGE = "avg"
# averages known to differ from those of their rows
KNOWN = {("6.1", "SelfReg"), ("6.1", "CORAL"), ("E.3", "CDANN")}


class TablesConfig(Config):
    rounding: float = Field(0.06, gt=0, description="how far a printed average may lie from that of its row")


figure = Experiment(
    name="nuclear_norm_dg/tables", trains=False,
    figures=("Table 6.1", "Table 6.2", "Table 6.3", "Table E.1", "Table E.2", "Table E.3", "Table E.4", "Table E.5",
        "Table E.6", "Fig. 6.4"), published={"Table 6.1": "Table 1"}, part="printed",
    title="Printed accuracies: averages, and gains by the nuclear norm",
    caption="Left: Fig. 6.4 from the averages of Tables E.1 to E.5; bars are two standard errors of the difference. "
    "Right: printed averages less those of their rows, a dot for each algorithm.", laptop=TablesConfig(),
    paper=TablesConfig(), grid={"seed": range(6)}, sweep_axes={"rounding": uniform(0.05, 0.2)}, metric="least_gain",
    mode="max", minutes=0.1, small={"rounding": 0.06},
)


@figure.trial
def run(config: TablesConfig, recorder: Recorder) -> None:
    off = [abs(value) > config.rounding for value in errors().values()]
    gained = gains()
    spread = {key: gain / two_errors(*key) * 2 for key, gain in gained.items()}
    values = {
        "wrong_averages": sum(off),
        "least_gain": min(gained.values()),
        "gains": sum(gain > 0 for gain in gained.values()),
    }
    unknown = [key for key, value in errors().items() if abs(value) > config.rounding and key not in KNOWN]
    values |= {"unknown_wrong_averages": len(unknown), "surely_gained": sum(z > 2 for z in spread.values())}
    best = max(TABLES["E.6"], key=lambda name: TABLES["E.6"][name][AVERAGE][0])
    values["nuclear_is_best_on_five"] = float(best == "SWAD-NU")
    recorder.log({name: float(value) for name, value in values.items()}, step=0)


@figure.cost
def cost(config: TablesConfig):
    return Cost(parameters=1, flops=1e4, memory_bytes=1e5)


def errors():
    """Printed averages less those of their rows, by table and algorithm."""
    differences = {}
    for name, table in TABLES.items():
        for algorithm, row in table.items():
            cells = [mean for column, (mean, _) in row.items() if column != AVERAGE]
            differences[name, algorithm] = row[AVERAGE][0] - sum(cells) / len(cells)
    return differences


def gains():
    """Gains of the averages of Tables E.1 to E.5 by the nuclear norm, by table and algorithm."""
    return {
        (name, base): TABLES[name][f"{base}-NU"][AVERAGE][0] - TABLES[name][base][AVERAGE][0]
        for name in DATASETS
        for base in BASES
    }


def two_errors(name, base):
    """Two standard errors of the difference of two averages, from the printed errors of their cells."""
    cells = [TABLES[name][row] for row in (base, f"{base}-NU")]
    variances = [sum(error**2 for error in [e for _, e in row.values() if e is not None]) for row in cells]
    counts = [len(row) - 1 for row in cells]
    return 2 * sum(v / n**2 for v, n in zip(variances, counts, strict=True)) ** 0.5


@figure.claim("c10_averages", kind="identity", says="every printed average equals the average of its row up to "
    "rounding (number of exceptions)", paper="printed averages", where="Tables 6.1, E.1 to E.6", expect=at_most(0))
def averages(runs):
    return runs.final("wrong_averages")


@figure.claim("c10_averages_but_three", kind="identity", origin="corrected",
    says="every printed average but three, of SelfReg and CORAL in Table 6.1 and CDANN in Table E.3, equals the "
    "average of its row up to rounding (further exceptions)", expect=at_most(0))
def known_averages(runs):
    return runs.final("unknown_wrong_averages")


@figure.claim("c10_nu_improves_all", kind="identity", paper="15 of 15", where="Table 6.2, Fig. 6.4",
    says="the nuclear norm improves every average of ERM, Mixup and SWAD (least gain, in points)", expect=above(0))
def all_improve(runs):
    return runs.final("least_gain")


@figure.claim("c10_gains_beyond_errors", kind="identity", origin="ours", where="Tables E.1 to E.5",
    says="each of the fifteen gains by the nuclear norm exceeds two of its standard errors (gains that do not)",
    expect=at_most(0))
def beyond_errors(runs):
    return len(DATASETS) * len(BASES) - runs.final("surely_gained")


@figure.claim("c10_best_regulariser", kind="identity", origin="ours", where="Table 6.3",
    paper="71.8, first", says="SWAD with the nuclear norm is the best of the regularisers on average over all five "
    "sets, as over three (1 if it is)", expect=above(0))
def best_regulariser(runs):
    return runs.final("nuclear_is_best_on_five")


@figure.draw(cols=2, size=(10, 3.7))
def panels(runs, axes):
    left, right = axes[0]
    xs = np.arange(len(DATASETS))
    for place, (base, colour) in enumerate(zip(BASES, CATEGORIES, strict=False)):
        heights = [gains()[name, base] for name in DATASETS]
        whiskers = [two_errors(name, base) for name in DATASETS]
        left.bar(xs + 0.27 * (place - 1), heights, 0.25, yerr=whiskers, color=colour, label=base, ecolor="black")
    null_level(left, 0)
    left.set_xticks(xs, list(DATASETS.values()))
    left.set(ylabel="gain by the nuclear norm, points", title="Fig. 6.4, printed")
    left.legend()
    for place, name in enumerate(TABLES):
        values = [value for (table, _), value in errors().items() if table == name]
        right.scatter(place + np.linspace(-0.2, 0.2, len(values)), values, s=10, color=CATEGORIES[0])
    for level in (-0.06, 0.06):
        bound_level(right, level, "rounding" if level > 0 else None)
    right.set_xticks(range(len(TABLES)), list(TABLES))
    right.set(xlabel="table", ylabel="printed average less that of its row, points")
    right.legend()
