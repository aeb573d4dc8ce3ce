"""What several commands do: open the store, check folders, run trials, print links."""

import functools
import shlex
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from featurelab.pipelines.engine.errors import inform
from featurelab.pipelines.engine.experiment.experiment import Experiment
from featurelab.pipelines.engine.trial.home import connect as connect
from featurelab.pipelines.engine.trial.home import folder as folder
from featurelab.pipelines.engine.trial.home import outbox_folder as outbox_folder
from featurelab.pipelines.engine.trial.signals import last_line

if TYPE_CHECKING:
    from featurelab.pipelines.engine.trial.record import TrialRecord
    from featurelab.tracking.store.store import Store


def runs_trials(command: Callable[..., None]) -> Callable[..., None]:
    """Decorate a command that runs trials: what they print goes to standard error, and Ray stops with the command."""

    @functools.wraps(command)
    def wrapped(*args: Any, **options: Any) -> None:
        from featurelab.pipelines.engine.command.terminal import keeping_stdout
        from featurelab.pipelines.engine.sweep.ray.cluster import shut_down

        with keeping_stdout():
            last_line.recorded = False
            try:
                command(*args, **options)
            finally:
                shut_down()

    return wrapped


def start_ray(address: str | None) -> None:
    """Start Ray or join it, and import meanwhile what the rest of the command needs: MLflow, pandas, Matplotlib."""
    from featurelab.pipelines.engine.sweep.ray.cluster import connect_ray

    engine = "featurelab.pipelines.engine"
    connect_ray(address, [f"{engine}.sweep.begin", f"{engine}.verdict.reproduce", "matplotlib.figure"])


def typed_command(without: str = "") -> str:
    """Return this command as it was typed, except for one option, ready to be pasted."""
    return shlex.join(["featurelab", *(word for word in sys.argv[1:] if word != without)])


def print_links(
    store: "Store", experiment: Experiment, sweep: str, sweep_run_id: str, trials: "Sequence[TrialRecord]"
) -> None:
    """Print where MLflow shows the curves of a sweep, and its trials in parallel coordinates."""
    from featurelab.pipelines.engine.verdict.links import of_sweep

    for name, link in of_sweep(store, experiment, sweep, sweep_run_id, trials):
        inform(f"{name}: {link}")
