"""What the commands of `featurelab` have in common: arguments, which a shell completes, and how they begin and end."""

import functools
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from featurelab.pipelines.engine.errors import RequestError, tell
from featurelab.pipelines.engine.experiment import registry
from featurelab.pipelines.engine.experiment.config import Scale
from featurelab.pipelines.engine.lazy import lazy
from featurelab.pipelines.engine.trial.signals import parting, raised

# These bring torch, Ray, MLflow or pandas: a command loads what it uses, and a listing none of them.
comparing = lazy("featurelab.pipelines.engine.verdict.compare")
connecting = lazy("featurelab.tracking.store.connect")
deciding = lazy("featurelab.pipelines.engine.verdict.decide")
describing = lazy("featurelab.pipelines.engine.sweep.descriptions")
entering = lazy("featurelab.pipelines.engine.verdict.report")
examining = lazy("featurelab.pipelines.engine.command.doctor")
judging = lazy("featurelab.pipelines.engine.verdict.judge")
linking = lazy("featurelab.pipelines.engine.verdict.links")
paging = lazy("featurelab.pipelines.engine.command.mlflow_pages")
placing = lazy("featurelab.tracking.store.places")
planning = lazy("featurelab.pipelines.engine.experiment.needs")
ranking = lazy("featurelab.pipelines.engine.sweep.best")
reading = lazy("featurelab.pipelines.engine.sweep.records")
repeating = lazy("featurelab.pipelines.engine.verdict.rerun")
reporting = lazy("featurelab.tracking.report")
reproducing = lazy("featurelab.pipelines.engine.verdict.reproduce")
resourcing = lazy("featurelab.pipelines.engine.sweep.resources")
searching = lazy("featurelab.tracking.store.query")
storing = lazy("featurelab.tracking.store.addresses")
sending = lazy("featurelab.tracking.outbox.sync")
showing = lazy("featurelab.pipelines.engine.command.terminal")
sweeping = lazy("featurelab.pipelines.engine.sweep.begin")
trying = lazy("featurelab.pipelines.engine.trial.run")
watching = lazy("featurelab.pipelines.engine.command.watch")


def complete_experiments(incomplete: str) -> list[str]:
    return [name for name in registry.names() if name.startswith(incomplete)]


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


def typed(without: str = "") -> str:
    """This command as it was typed, but for one option: it can be pasted."""
    return shlex.join(["featurelab", *(word for word in sys.argv[1:] if word != without)])


def working(command: Callable[..., None]) -> Callable[..., None]:
    """Decorator of the commands that run trials: standard output is for what they say, and Ray ends with them."""

    @functools.wraps(command)
    def wrapped(*args: Any, **options: Any) -> None:
        with showing.keeping_stdout():
            parting.kept = False
            try:
                command(*args, **options)
            finally:
                if "ray" in sys.modules:
                    sys.modules["ray"].shutdown()

    return wrapped


def connect(*, create: bool = True) -> Any:
    """The store of this environment; it is said where it is a copy whose artifacts lie elsewhere."""
    with raised():  # a store that is half made goes away again
        store = connecting.connect(create=create)
    if store.uri.startswith("sqlite:") and (said := placing.copied_from(storing.sqlite_path(store.uri))):
        tell(f"featurelab: {said}")
    return store
