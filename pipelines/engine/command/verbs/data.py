"""`featurelab data`: the public datasets that desktop and paper presets read."""

from collections.abc import Callable
from typing import Any

import typer

from featurelab.pipelines.engine.command.arguments import Json
from featurelab.pipelines.engine.errors import RequestError, tell, unknown
from featurelab.tracking.lines import line

app = typer.Typer(help="List, download and check the public datasets that desktop and paper presets read.")


@app.callback(invoke_without_command=True)
def show_help(ctx: typer.Context) -> None:
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


@app.command("list")
def data_list(as_json: Json = False) -> None:
    """List the public datasets, and whether they are on this machine."""
    from featurelab.modules import data
    from featurelab.pipelines.engine.command import terminal

    rows = [_described(source) for source in data.available_datasets()]
    if as_json:
        terminal.emit(rows)
    else:
        terminal.console().print(terminal.pairs_table("", list(rows[0]), [list(row.values()) for row in rows]))


@app.command("fetch")
def data_fetch(name: str) -> None:
    """Download a public dataset into the cache."""
    from featurelab.modules import data

    _on_dataset(data.fetch_dataset, name)
    tell(f"{name} is on this machine")


@app.command("check")
def data_check(name: str, as_json: Json = False) -> None:
    """Check a public dataset, and print its splits."""
    from featurelab.modules import data
    from featurelab.pipelines.engine.command import terminal

    dataset = _on_dataset(data.check_dataset, name)
    if as_json:
        terminal.emit(dataset)
    for name_of_split, split in dataset["splits"].items():
        tell(f"{name} {name_of_split}: {split['rows']} rows, digest {split['digest'][:16]}")
    if not dataset["present"]:
        tell(f"featurelab: {dataset['missing']}")
    raise typer.Exit(0 if dataset["present"] else 2)


def _on_dataset(action: Callable[[str], Any], name: str) -> Any:
    """Return `action(name)`; raise `RequestError` for an unknown dataset, and for one that is not on this machine."""
    from featurelab.modules import data

    names = [source.name for source in data.available_datasets()]
    if name not in names:
        raise unknown("dataset", name, names)
    try:
        return action(name)
    except data.DatasetMissing as missing:
        raise RequestError(str(missing)) from None


def _described(source: Any) -> dict[str, Any]:
    from featurelab.modules import data

    try:
        data.require_dataset(source.name)
        here = True
    except data.DatasetRefused as refused:
        tell(f"featurelab: {line(str(refused))}")
        here = False
    except data.DatasetMissing:
        here = False
    return {"name": source.name, "here": here, "repo": source.repo_id, "needs": source.needs, "url": source.url}
