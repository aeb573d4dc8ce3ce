"""Commands about stored runs: rerun, compare, report, ui, sync."""

from pathlib import Path
from typing import Annotated

import typer

from featurelab.pipelines.engine.command.arguments import Address, Json, RunId
from featurelab.pipelines.engine.command.shared import connect, folder, outbox_folder, runs_trials
from featurelab.pipelines.engine.errors import RequestError, tell
from featurelab.tracking.lines import without_credentials


@runs_trials
def rerun(run_id: RunId, address: Address = None, as_json: Json = False) -> None:
    """Repeat a run, or a whole sweep, from its id, and say whether the results are identical."""
    from featurelab.pipelines.engine.command import terminal
    from featurelab.pipelines.engine.verdict import rerun as engine
    from featurelab.tracking.store.query import whole_id

    store = connect(create=False)
    repetition = engine.rerun(whole_id(store, run_id), store, outbox=outbox_folder(), address=address)
    if as_json:
        terminal.emit(repetition.as_dict())
    else:
        result = "identical" if repetition.identical else "NOT identical"
        compared = f"{repetition.points} of {repetition.metrics_compared} metrics"
        tell(f"{result}: {compared}, largest difference {repetition.max_abs_diff:g}")
        for difference in repetition.differences:
            tell(f"  {difference}")
        for change in repetition.environment_changes:
            tell(f"  environment: {change}")
        tell(f"new run {repetition.new_run_id}")
    raise typer.Exit(0 if repetition.identical else 1)


def compare(
    run_ids: Annotated[list[str], typer.Argument(metavar="RUN_ID RUN_ID...", help="Run ids, or unambiguous prefixes.")],
    as_json: Json = False,
) -> None:
    """Compare runs side by side: the settings that differ, and the last values of metrics."""
    from featurelab.pipelines.engine.command import terminal
    from featurelab.pipelines.engine.verdict import compare as engine

    comparison = engine.compare(run_ids, connect(create=False))
    if as_json:
        terminal.emit(comparison)
        return
    rows = [[name, *values] for part in ("settings", "metrics") for name, values in comparison[part].items()]
    terminal.console().print(terminal.pairs_table("", ["", *comparison["names"]], rows, unbroken=[""]))
    tell(f"in MLflow: {comparison['url']}")


def report(
    out: Annotated[Path, typer.Option(help="Folder to write to.")] = Path("report"),
    store_url: Annotated[
        str, typer.Option(help="Address at which readers reach the store's MLflow pages. Default: no links to them.")
    ] = "",
) -> None:
    """Write one HTML page with all verdicts and figures."""
    out = folder(out, "--out")

    from featurelab.pipelines.engine.verdict.links import base_of
    from featurelab.pipelines.engine.verdict.report import write_report

    written = write_report(connect(create=False), out, base=base_of(store_url) if store_url else "")
    for name, reason in written.left_out:
        tell(f"left out: {name}: {reason}")
    for name, reason in written.not_drawn:
        tell(f"without its drawing: {name}: {reason}")
    tell(f"report: {written.page.as_uri()}")
    raise typer.Exit(1 if written.left_out or written.not_drawn else 0)


def ui(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port on which to serve the pages.")] = 5000,
) -> None:
    """Serve the store's MLflow pages on this machine."""
    store = connect(create=False)
    if store.uri.startswith(("http:", "https:")):
        raise RequestError(f"the store is a server with pages of its own: open {without_credentials(store.uri)}")

    from featurelab.pipelines.engine.command import mlflow_pages
    from featurelab.pipelines.engine.verdict.links import of_store

    for title, link in of_store(store, port):
        tell(f"{title}: {link}")
    raise typer.Exit(mlflow_pages.serve(store, port))


def sync(
    discard: Annotated[
        list[str] | None,
        typer.Option(metavar="RUN_ID", help="Delete what is unsent of this run, which no store accepts."),
    ] = None,
) -> None:
    """Send to the store what a crash or an unreachable server left unsent."""
    outbox = outbox_folder(writes=False)

    from featurelab.tracking.outbox import sync as sending

    for run_id in discard or []:
        sending.discard(outbox, run_id)
        tell(f"deleted what was unsent of {run_id}")
    summary = sending.sync(outbox)
    tell(f"{len(summary.sent)} runs sent, {len(summary.busy)} still being recorded, {len(summary.failed)} left unsent")
    for run_id, reason in summary.failed.items():
        tell(f"  {run_id}: {reason}")
    for run_id, reason in summary.rejected.items():
        tell(f"  {run_id}: sent, except for what the store refuses, now in its artifact rejected.jsonl: {reason}")
    raise typer.Exit(1 if summary.failed else 0)
