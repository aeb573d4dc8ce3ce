"""What the comparisons of methods in Tables A.1 to A.5 share: rows of the tables, and how their figures are drawn.

A row is a method, with or without structure in the data, at a learning rate. The fixed features have several rates: the
network's, as in the paper, and the one with the best *test* accuracy, which favours them.
"""

from typing import Any

from featurelab.pipelines import CATEGORIES, Missing, choice, legend_below, loguniform, np, printed_table

TABLES: dict[str, dict[str, dict[str, Any]]] = {}  # printed rows by table and method
for printed_row in printed_table(__file__, "tables_a1_to_a5.csv"):
    TABLES.setdefault(str(printed_row["table"]), {})[str(printed_row["method"])] = printed_row
SEEDS = [0, 1, 2]
RATES = (3e-4, 1e-3, 5e-3, 0.02, 0.1)
NAMES = {"network": "network", "two_steps": "two steps, heads", "one_step": "one step, heads", "ntk": "NTK",
    "rf": "random features"}
SWEEP = {"lr": loguniform(1e-3, 1e-1), "width": choice(50, 100, 300), "weight_decay": loguniform(1e-6, 1e-2),
    "n_train": choice(5000, 10_000, 20_000), "unstructured": choice(0.1, 0.3, 0.5), "smoothing": choice(0.0, 1.0, 3.0),
    "first_lr": loguniform(1e-9, 1.0), "erase": choice(0.0, 0.5, 1.0)}
SMALL = {"n_train": 80, "n_test": 60, "dim": 14, "patterns": 12, "size": 3, "width": 4, "steps": 6, "batch_size": 20,
    "measure_every": 3}
AXIS = ("method", "structured", "lr")


def rows(rate: float, rates: Any = RATES, unstructured: Any = ("network", "ntk", "rf")) -> list[tuple[Any, ...]]:
    """Return all methods at the network's rate, fixed features at other rates too, some methods without structure."""
    trained = [(method, True, rate) for method in ("network", "one_step", "two_steps", "ntk", "rf")]
    tuned = [(method, True, other) for method in ("ntk", "rf") for other in rates if other != rate]
    return trained + tuned + [(method, False, rate) for method in unstructured]


def own_rate(runs: Any) -> float:
    """The network's learning rate. Raises `Missing` if there are several: select one."""
    rates = runs.where(method="network").values("lr")
    if len(rates) != 1:
        raise Missing(f"the network has {len(rates)} learning rates")
    return float(rates[0])


def accuracy(runs: Any, method: str, structured: bool = True, metric: str = "accuracy/test", **where: Any) -> float:
    """The accuracy of a method at the network's learning rate."""
    return float(runs.final(metric, method=method, structured=structured, lr=own_rate(runs), **where))


def tuned(runs: Any, method: str, metric: str = "accuracy/test", **where: Any) -> float:
    """The best accuracy of a method over its rates."""
    some = runs.where(method=method, structured=True, **where)
    return max(float(some.final(metric, lr=rate)) for rate in some.values("lr"))


def cosine(runs: Any, step: int | None, kind: str = "max_cosine", method: str = "network", **where: Any) -> float:
    """The cosine of neurons with s* after a step, the last one for None: the largest, or of another `kind`."""
    where = {"method": method, "structured": True, "lr": own_rate(runs)} | where
    if step is None:
        return float(runs.final(f"cosine/{kind}", **where))
    return float(runs.at(f"cosine/{kind}", step, **where))


def draw_curves(axis: Any, runs: Any, structured: bool = True) -> None:
    """Draw test accuracy against the step: bold at a method's best learning rate, thin at the others."""
    some = runs.where(structured=structured)
    for (method, name), colour in zip(NAMES.items(), CATEGORIES, strict=False):
        mine = some.where(method=method)
        if not len(mine.trials):
            continue
        tables = {rate: mine.curves("accuracy/test", lr=rate) for rate in mine.values("lr")}
        best = max(tables, key=lambda rate: tables[rate].iloc[-1].mean())
        for rate, table in tables.items():
            mean = table.mean(axis=1)
            look = {"linewidth": 1.8, "label": name} if rate == best else {"linewidth": 0.6, "alpha": 0.6}
            axis.plot(mean.index, mean, color=colour, **look)
            if rate == best:
                axis.fill_between(mean.index, table.min(axis=1), table.max(axis=1), color=colour, alpha=0.15, lw=0)
    axis.set(xlabel="step", ylabel="test accuracy", ylim=(None, 1.02))


def draw_table(axis: Any, runs: Any, table: str) -> None:
    """Draw final test accuracies at each method's best rate beside those of a printed table."""
    rows = [(name, method, True) for method, name in NAMES.items()]
    rows += [(f"{NAMES[method]}, no structure", method, False) for method in ("network", "ntk", "rf")]
    rows = [row for row in rows if len(runs.where(method=row[1], structured=row[2]).trials)]
    for place, (_, method, structured) in enumerate(rows):
        mine = runs.where(method=method, structured=structured)
        values = max((mine.finals("accuracy/test", lr=rate) for rate in mine.values("lr")), key=np.mean)
        ends = np.clip([[values.mean() - values.min()], [values.max() - values.mean()]], 0, None)
        axis.barh(place, values.mean(), xerr=ends, color=CATEGORIES[0 if structured else 5], height=0.65)
        printed = TABLES[table].get(method if structured else "unstructured" if method == "network" else "")
        if printed:
            axis.plot(printed["test"] / 100, place, "D", color=CATEGORIES[1], markersize=5, zorder=3,
                label="paper" if place == 0 else None)
    axis.set_yticks(range(len(rows)), [name for name, *_ in rows])
    axis.set(xlim=(0.35, 1.03), xlabel="test accuracy, best rate")
    axis.grid(axis="y", visible=False)
    axis.invert_yaxis()
    legend_below(axis)
