"""The descriptions of figures and sweeps on MLflow's pages."""

import sys
from collections.abc import Sequence

from featurelab.pipelines.engine.experiment.catalogue import papers
from featurelab.pipelines.engine.experiment.claims import STATUSES, Verdict
from featurelab.pipelines.engine.experiment.experiment import Experiment
from featurelab.pipelines.engine.sweep.records import VERDICTS
from featurelab.tracking import pages
from featurelab.tracking.numbers import measurement, named, number
from featurelab.tracking.store.connect import Store


def describe(store: Store, experiment: Experiment) -> None:
    """Give the experiment's page a description: what the figure shows, the paper, the command."""
    experiment_id = store.experiment_id(experiment.name)
    module = sys.modules.get(str(getattr(experiment.run_trial, "__module__", "")))
    parts = [
        # the page shows one line of the first paragraph, and tables show its first words
        f"{_title(experiment)} [Charts](#{pages.charts_link(experiment_id)[2:]})",
        experiment.caption or (module and module.__doc__),
        papers.in_markdown(experiment),
        f"`{_reproduction(experiment)}`",
    ]
    text = "\n\n".join(part.strip() for part in parts if part)
    pages.describe(store, experiment_id, text, mark=f"`{_reproduction(experiment)}`")


def describe_verdicts(store: Store) -> None:
    """Give the page of all sweeps a description, and a view with the verdicts on their claims."""
    experiment_id = store.experiment_id(VERDICTS)
    counts = [f"claims/{status}" for status in (*STATUSES, "unexpected")]
    pages.keep_columns(store, experiment_id, "counts of claims", counts, ["scale"])
    link = f"[Counts of claims](#{pages.table_link(experiment_id, pages.COLUMNS)[2:]})"
    judge, report = "`featurelab judge SWEEP`", "`featurelab report`"
    text = f"""One run for each sweep, with its plan, its drawing, and the verdicts on a figure's claims. {link}

Trials are in the experiments of their figures, with the tag `sweep`.

{judge} judges and draws a sweep again from what is stored. {report} puts all figures on one page."""
    pages.describe(store, experiment_id, text, mark=judge)


def sweep_note(experiment: Experiment, name: str, axes: Sequence[str], trials: int) -> str:
    """The description of a sweep that is not the figure's own."""
    parts = [
        f"Sweep `{name}`: {trials} trials over {', '.join(axes)}, in the setting of {_title(experiment)}",
        papers.in_markdown(experiment),
        f"`featurelab sweep {experiment.name} --resume {name}` runs the trials that are missing.",
    ]
    return "\n\n".join(part for part in parts if part)


def map_note(experiment: Experiment, name: str, over: Sequence[str], cells: int) -> str:
    """The description of a map: where the claims of a figure hold."""
    parts = [
        f"Map `{name}`: where the claims of {_title(experiment)[:-1]} hold, in {cells} cells over {', '.join(over)}.",
        "`cells.csv` has the verdict on each claim in each cell, and `map_*.png` are the pictures.",
        papers.in_markdown(experiment),
        f"`featurelab map {experiment.name} --resume {name}` runs the trials that are missing, and judges again.",
    ]
    return "\n\n".join(part for part in parts if part)


def reproduction_note(
    experiment: Experiment, verdicts: Sequence[Verdict], sweep_run_id: str, settings: str = ""
) -> str:
    """The description of a figure's own sweep, or of its grid at other settings: its verdicts in a table."""
    table = ["| claim | verdict | measured | expected | paper |", "|---|---|---|---|---|"]
    for v in verdicts:
        status = v.status + (" (unexpected)" if v.surprising else "")
        measured = named(measurement(v.measured, v.ci, v.expected)[0])
        table.append(f"| {v.statement} | {status} | {measured} | {number(v.expected)} | {number(v.paper)} |")
    parts = [
        f"**{_title(experiment)}**" + (f" At other settings than its own: `{settings}`." if settings else ""),
        "\n".join(table) if verdicts else "",
        papers.in_markdown(experiment),
        f"`{f'{_reproduction(experiment)} {settings}'.strip()}` makes it,"
        f" `featurelab judge {sweep_run_id}` judges again what is stored.",
    ]
    return "\n\n".join(part for part in parts if part)


def _title(experiment: Experiment) -> str:
    return f"{experiment.figure}: {experiment.title}."


def _reproduction(experiment: Experiment) -> str:
    return f"featurelab reproduce {experiment.name}"
