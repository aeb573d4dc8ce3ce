"""What the commands of `featurelab` have in common: arguments, which a shell completes, and how they begin and end."""

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from pipelines import registry
from pipelines.errors import RequestError, tell
from pipelines.experiment import Scale
from pipelines.lazy import lazy

# These bring torch, Ray, MLflow or pandas: a command loads what it uses, and a listing none of them.
comparing = lazy("pipelines.compare")
connecting = lazy("tracking.connect")
examining = lazy("pipelines.doctor")
linking = lazy("pipelines.links")
paging = lazy("pipelines.pages")
placing = lazy("tracking.places")
planning = lazy("pipelines.plan")
reading = lazy("pipelines.records")
recording = lazy("tracking.record")
repeating = lazy("pipelines.rerun")
reporting = lazy("tracking.report")
reproducing = lazy("pipelines.reproduce")
resourcing = lazy("pipelines.resources")
searching = lazy("tracking.query")
storing = lazy("tracking.store")
sending = lazy("tracking.outbox")
showing = lazy("pipelines.show")
sweeping = lazy("pipelines.sweep")
trying = lazy("pipelines.trial")
watching = lazy("pipelines.watch")


def complete_experiments(incomplete: str) -> list[str]:
    return [experiment.name for experiment in registry.experiments() if experiment.name.startswith(incomplete)]


def complete_names(incomplete: str) -> list[str]:
    """Systems and experiments."""
    return [name for name in registry.systems() if name.startswith(incomplete)] + complete_experiments(incomplete)


def complete_settings(ctx: typer.Context, incomplete: str) -> list[str]:
    """`lr=` and its like, of the experiment that the line names."""
    try:
        fields = type(registry.find(str(ctx.params.get("experiment"))).laptop).model_fields
    except RequestError:
        return []
    return [f"{name}=" for name in fields if f"{name}=".startswith(incomplete)]


Name = Annotated[str, typer.Argument(metavar="EXPERIMENT", autocompletion=complete_experiments)]
Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="[EXPERIMENT|SYSTEM]...", help="Default: all.", autocompletion=complete_names),
]
Settings = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]...", help="Settings to change.", autocompletion=complete_settings),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on standard output and nothing else there.")]
Address = Annotated[
    str | None, typer.Option(help="Ray cluster: HOST:PORT, ray://HOST:PORT or auto. Default: this machine.")
]
GPUs = Annotated[float, typer.Option(help="GPUs: a fraction shares one, several train data-parallel.")]
From = Annotated[Path | None, typer.Option("--config", help="YAML or JSON file of settings; KEY=VALUE and --over win.")]
AtScale = Annotated[Scale, typer.Option("--scale", help="Which preset.")]


def working(command: Callable[..., None]) -> Callable[..., None]:
    """Decorator of the commands that run trials: standard output is for what they say, and Ray ends with them."""

    @functools.wraps(command)
    def wrapped(*args: Any, **options: Any) -> None:
        with showing.keeping_stdout():
            try:
                command(*args, **options)
            finally:
                if "ray" in sys.modules:
                    sys.modules["ray"].shutdown()

    return wrapped


def connect(*, create: bool = True) -> Any:
    """The store of this environment; it is said where it is a copy whose artifacts lie elsewhere."""
    store = connecting.connect(create=create)
    if store.uri.startswith("sqlite:") and (said := placing.copied_from(storing.sqlite_path(store.uri))):
        tell(f"featurelab: {said}")
    return store
