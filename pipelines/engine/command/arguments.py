"""The arguments and options that several commands share, and how a shell completes them."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from featurelab.pipelines.engine.errors import RequestError
from featurelab.pipelines.engine.experiment.catalogue import registry
from featurelab.pipelines.engine.experiment.config import Scale


def complete_experiments(incomplete: str) -> list[str]:
    return [name for name in registry.names() if name.startswith(incomplete)]


def complete_systems_and_experiments(incomplete: str) -> list[str]:
    return [name for name in registry.systems() if name.startswith(incomplete)] + complete_experiments(incomplete)


def complete_settings(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return `lr=` and the like: the settings of the experiment on the command line."""
    name = ctx.params.get("experiment_name") or ctx.params.get("name")
    try:
        fields = type(registry.find(str(name)).laptop).model_fields
    except RequestError:
        return []
    return [f"{field}=" for field in fields if f"{field}=".startswith(incomplete)]


Name = Annotated[
    str, typer.Argument(metavar="EXPERIMENT", help="See featurelab list.", autocompletion=complete_experiments)
]
MaybeName = Annotated[
    str | None,
    typer.Argument(
        metavar="EXPERIMENT", help="See featurelab list. With --file: the file's.", autocompletion=complete_experiments
    ),
]
Names = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[EXPERIMENT|SYSTEM]...", help="Default: all.", autocompletion=complete_systems_and_experiments
    ),
]
NamesAndSettings = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[EXPERIMENT|SYSTEM]... [KEY=VALUE]...",
        help="Default: all. KEY=VALUE judges one figure at other settings.",
        autocompletion=complete_systems_and_experiments,
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]...", help="Settings to change.", autocompletion=complete_settings),
]
SettingsFile = Annotated[
    Path | None, typer.Option("--config", help="YAML or JSON file of settings. KEY=VALUE and --over override it.")
]
AtScale = Annotated[Scale, typer.Option("--scale", help="Which preset to start from.")]
Address = Annotated[
    str | None, typer.Option(help="Ray cluster: HOST:PORT, ray://HOST:PORT or auto. Default: this machine.")
]
GPUs = Annotated[float, typer.Option(help="GPUs of each trial: a fraction shares one, several train data-parallel.")]
SaveWeights = Annotated[
    Literal["last", "best"] | None,
    typer.Option("--save", help="Store the weights of each fit: the last ones, or the best by the figure's metric."),
]
RunId = Annotated[str, typer.Argument(metavar="RUN_ID", help="A run id, or an unambiguous prefix.")]
SweepId = Annotated[str, typer.Argument(metavar="SWEEP_RUN_ID", help="A sweep's run id, or an unambiguous prefix.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document, and nothing else, on standard output.")]
