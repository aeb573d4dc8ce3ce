"""The commands about what is stored: judge, repeat, compare, report, show in MLflow's pages, send."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from featurelab.pipelines.engine.command.folders import folder, outbox
from featurelab.pipelines.engine.command.settings import (
    Address,
    Json,
    comparing,
    connect,
    entering,
    examining,
    judging,
    linking,
    paging,
    repeating,
    reporting,
    searching,
    sending,
    showing,
    working,
)
from featurelab.pipelines.engine.errors import RequestError, tell
from featurelab.pipelines.engine.experiment.experiment import Experiment
from featurelab.tracking.lines import without_credentials

RunId = Annotated[str, typer.Argument(metavar="RUN_ID", help="An id, or as much of its beginning as is unique.")]


def judge(
    sweep_run_id: Annotated[str, typer.Argument(metavar="SWEEP_RUN_ID", help="An id, or its beginning.")],
    as_json: Json = False,
) -> None:
    """Judge and draw a sweep again from what is stored."""
    store = connect(create=False)
    judged = judging.judge(searching.whole_id(store, sweep_run_id), store)
    if not as_json:
        print_verdicts(judged, store)
    finish([judged], store, as_json)


@working
def rerun(run_id: RunId, address: Address = None, as_json: Json = False) -> None:
    """Repeat a run, or a whole sweep, from its id and say whether it came out the same."""
    store = connect(create=False)
    result = repeating.rerun(searching.whole_id(store, run_id), store, outbox=outbox(), address=address)
    if as_json:
        showing.emit(result.as_dict())
    else:
        word = "identical" if result.identical else "NOT identical"
        tell(
            f"{word}: {result.points} of {result.metrics_compared} metrics, largest difference {result.max_abs_diff:g}"
        )
        for line in result.differences:
            tell(f"  {line}")
        for line in result.environment_changes:
            tell(f"  environment: {line}")
        tell(f"new run {result.new_run_id}")
    raise typer.Exit(0 if result.identical else 1)


def compare(
    run_ids: Annotated[list[str], typer.Argument(metavar="RUN_ID RUN_ID...", help="Ids, or their beginnings.")],
    as_json: Json = False,
) -> None:
    """Put runs side by side: what differs in their settings, and their last values."""
    said = comparing.compare(run_ids, connect(create=False))
    if as_json:
        showing.emit(said)
        return
    out = showing.console()
    rows = [[k, *values] for part in ("settings", "metrics") for k, values in said[part].items()]
    out.print(showing.pairs_table("", ["", *said["names"]], rows, whole=[""]))
    tell(f"in MLflow: {said['url']}")


def report(
    out: Annotated[Path, typer.Option(help="Folder to write to.")] = Path("report"),
    store_url: Annotated[
        str, typer.Option(help="Where readers reach the store's MLflow pages. Default: no links to them.")
    ] = "",
) -> None:
    """Write one HTML page with every verdict and figure."""
    out = folder(out, "--out")
    base = linking.base_of(store_url) if store_url else ""
    entries = list(entering.report_entries(connect(create=False), base=base))
    if not entries:
        raise RequestError("nothing to report yet: run featurelab reproduce first")
    left_out = [(entry["name"], entry["left_out"]) for entry in entries if "left_out" in entry]
    if len(left_out) == len(entries):
        raise RequestError(left_out[0][1])
    not_drawn = [(entry["name"], entry["not_drawn"]) for entry in entries if "not_drawn" in entry]
    page = reporting.render(entries, out)
    for name, reason in left_out:
        tell(f"left out: {name}: {reason}")
    for name, reason in not_drawn:
        tell(f"without its drawing: {name}: {reason}")
    tell(f"report: {page.as_uri()}")
    raise typer.Exit(1 if left_out or not_drawn else 0)


def ui(port: Annotated[int, typer.Option(min=1, max=65535)] = 5000) -> None:
    """Serve the store's MLflow pages on this machine."""
    store = connect(create=False)
    if store.uri.startswith(("http:", "https:")):
        raise RequestError(f"the store is a server, which has its pages itself: {without_credentials(store.uri)}")
    for title, link in linking.of_store(store, port):
        tell(f"{title}: {link}")
    raise typer.Exit(paging.serve(store, port))


def sync(
    discard: Annotated[
        list[str] | None, typer.Option(metavar="RUN_ID", help="Let go of what waits of this run, which no store takes.")
    ] = None,
) -> None:
    """Send what a crash or a dead server left unsent."""
    kept = outbox(writes=False)
    for run_id in discard or []:
        sending.discard(kept, run_id)
        tell(f"let go of what was left of {run_id}")
    summary = sending.sync(kept)
    tell(f"{len(summary.sent)} runs sent, {len(summary.busy)} still being recorded, {len(summary.failed)} left unsent")
    for run_id, reason in summary.failed.items():
        tell(f"  {run_id}: {reason}")
    for run_id, refused in summary.rejected.items():
        tell(f"  {run_id}: sent, without what the store refuses, now its artifact rejected.jsonl: {refused}")
    raise typer.Exit(1 if summary.failed else 0)


def doctor(as_json: Json = False) -> None:
    """Check that this machine is fit to run experiments."""
    checks = examining.examine(outbox(writes=False))
    if as_json:
        showing.emit(checks)
    else:
        for check in checks:
            tell(f"{'ok  ' if check['ok'] else 'BAD '} {check['name']}: {check['detail']}")
    raise typer.Exit(0 if all(check["ok"] for check in checks) else 1)


def print_verdicts(judged: Any, store: Any) -> None:
    """The verdicts on a figure, or that a sweep is none, and where its charts are."""
    title = f"{judged.experiment.name}: {len(judged.trials)} trials in {judged.seconds:.0f} s"
    if judged.is_the_figure:
        showing.console().print(showing.verdict_table(f"{title}, sweep {judged.sweep_run_id}", judged.verdicts))
    else:
        tell(f"{title}: a sweep of its own, not the figure's grid, of which its claims are; drawn against its axes")
    if judged.trials_of:
        tell(f"its trials are those of {judged.experiment.reads.name}, sweep {judged.trials_of}")
    else:
        tell_links(store, judged.experiment, judged.sweep, judged.sweep_run_id, judged.trials)


def tell_links(store: Any, experiment: Experiment, sweep: str, sweep_run_id: str, trials: Sequence[Any]) -> None:
    """Say where MLflow shows the curves of a sweep, and its trials by axes."""
    for name, link in linking.of_sweep(store, experiment, sweep, sweep_run_id, trials):
        tell(f"{name}: {link}")


def finish(judged: list[Any], store: Any, as_json: bool) -> None:
    """Say what came of all claims, and exit with 1 where it is otherwise than documented."""
    if as_json:
        showing.emit({"experiments": [one.as_dict() for one in judged]})
    verdicts = [verdict for one in judged for verdict in one.verdicts]
    counts = {s: sum(v.status == s for v in verdicts) for s in ("holds", "fails", "undecided", "untested")}
    figures = [one for one in judged if one.is_the_figure]
    if figures:
        tell(", ".join(f"{number} {status}" for status, number in counts.items()))
    if figures and not as_json:
        tell(f"all verdicts: {linking.of_all_verdicts(store, figures[0].sweep_run_id)}")
    for one in judged:
        for verdict in one.verdicts:
            if verdict.surprising:
                tell(f"otherwise than documented: {one.experiment.name} {verdict.id} {verdict.status}")
    raise typer.Exit(0 if all(one.as_documented for one in judged) else 1)
