"""The `featurelab` command: its name, its help, and the list of its subcommands."""

import sys
from collections.abc import Callable
from importlib.metadata import version
from typing import Annotated

import typer

from featurelab.pipelines.engine.command import exits
from featurelab.pipelines.engine.command.verbosity import Quiet, Verbose, set_level, with_verbosity
from featurelab.pipelines.engine.command.verbs import (
    authors,
    catalogue,
    data,
    doctor,
    export,
    known,
    map,
    reproduce,
    run,
    slurm,
    stored,
    sweep,
)

app = typer.Typer(
    name="featurelab",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="The open laboratory for feature learning: published figures as judged, tracked, repeatable sweeps.",
)

# In the order in which the help shows them. To add a command, write its function and name it here.
COMMANDS: dict[str, Callable[..., None]] = {
    "list": catalogue.list_,
    "show": catalogue.show,
    "run": run.run,
    "sweep": sweep.sweep,
    "slurm": slurm.slurm,
    "reproduce": reproduce.reproduce,
    "map": map.map_,
    "judge": reproduce.judge,
    "rerun": stored.rerun,
    "compare": stored.compare,
    "export": export.export,
    "report": stored.report,
    "ui": stored.ui,
    "sync": stored.sync,
    "doctor": doctor.doctor,
    "new": authors.new,
    "check": authors.check,
    "known": known.known,
}
for name, command in COMMANDS.items():
    app.command(name)(with_verbosity(command))
for registered in data.app.registered_commands:
    registered.callback = with_verbosity(registered.callback) if registered.callback else None
app.add_typer(data.app, name="data")


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"featurelab {version('feature-learning-lab')}")
        raise typer.Exit()


@app.callback(invoke_without_command=True)
def show_help(
    ctx: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> None:
    set_level(verbose, quiet)
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


def main() -> None:
    """Run the command and exit with its status."""
    sys.exit(exits.status_of(lambda: app(standalone_mode=False)))


def script() -> None:
    """Run the command as a process of its own: the entry point of the installed `featurelab`."""
    exits.end_process_after(main)


if __name__ == "__main__":
    script()
