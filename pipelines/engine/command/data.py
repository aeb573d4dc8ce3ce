"""`featurelab data`: public datasets that paper presets read."""

from collections.abc import Callable
from typing import Any

import typer

from featurelab.pipelines.engine.command.settings import Json, showing
from featurelab.pipelines.engine.errors import RequestError, tell, unknown
from featurelab.pipelines.engine.lazy import lazy
from featurelab.tracking.lines import line

datasets = lazy("featurelab.modules.data.public")

app = typer.Typer(help="Public datasets that paper presets read.")


@app.callback(invoke_without_command=True)
def begin(ctx: typer.Context) -> None:
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


@app.command("list")
def data_list(as_json: Json = False) -> None:
    """List the public datasets and whether they are here."""
    rows = [_described(source) for source in datasets.available_datasets()]
    if as_json:
        showing.emit(rows)
    else:
        showing.console().print(showing.pairs_table("", list(rows[0]), [list(row.values()) for row in rows]))


@app.command("fetch")
def data_fetch(name: str) -> None:
    """Download a public dataset into the cache."""
    _about_data(datasets.fetch_dataset, name)
    tell(f"{name} is here")


@app.command("check")
def data_check(name: str, as_json: Json = False) -> None:
    """Check that a public dataset is here, and say what it holds."""
    said = _about_data(datasets.check_dataset, name)
    if as_json:
        showing.emit(said)
    for split, found in said["splits"].items():
        tell(f"{name} {split}: {found['rows']} rows, digest {found['digest'][:16]}")
    if not said["present"]:
        tell(f"featurelab: {said['missing']}")
    raise typer.Exit(0 if said["present"] else 2)


def _about_data(action: Callable[[str], Any], name: str) -> Any:
    known = [source.name for source in datasets.available_datasets()]
    if name not in known:
        raise unknown("dataset", name, known)
    try:
        return action(name)
    except datasets.DatasetMissing as missing:
        raise RequestError(str(missing)) from None


def _described(source: Any) -> dict[str, Any]:
    try:
        datasets.require_dataset(source.name)
        here = True
    except datasets.DatasetRefused as refused:
        tell(f"featurelab: {line(str(refused))}")
        here = False
    except datasets.DatasetMissing:
        here = False
    return {"name": source.name, "here": here, "repo": source.repo_id, "needs": source.needs, "url": source.url}
