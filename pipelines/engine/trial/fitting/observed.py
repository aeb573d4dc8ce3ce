"""The trial of another experiment, run with further probes on its fit."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from featurelab.pipelines.engine.experiment.catalogue.registry import find
from featurelab.pipelines.engine.experiment.cost import Cost

if TYPE_CHECKING:
    from pytorch_lightning.callbacks import Callback

    from featurelab.tracking import Recorder

_further: "ContextVar[tuple[Callback, ...]]" = ContextVar("further", default=())


def further() -> "tuple[Callback, ...]":
    """The callbacks that `Observed` adds to every fit of its trial."""
    return _further.get()


class Observed:
    """The trial of experiment `name`: its laptop preset with `changes`, except for settings that it does not have.

    With `small`, the sizes are those at which `featurelab check` runs the experiment.

    Raises RequestError for an unknown experiment, and for values that a setting does not accept.
    """

    def __init__(self, name: str, *, small: bool = False, **changes: Any) -> None:
        self.experiment = find(name)
        preset = self.experiment.small_configs()[0] if small else self.experiment.laptop
        fields = type(preset).model_fields
        self.config = preset.but(**{name: value for name, value in changes.items() if name in fields})

    def run(self, probes: "Sequence[Callback]", recorder: "Recorder") -> None:
        """Run the trial with `probes` on its fit.

        The recorder gets the trial's datasets, but not its measurements; what the probes measure is in their `history`.
        Raises TypeError for an experiment without a trial.
        """
        if self.experiment.run_trial is None:
            raise TypeError(f"{self.experiment.name} declares no trial")
        from featurelab.tracking.outbox.null import (
            NamingRecorder,  # imports MLflow, which the declaration of a figure must not
        )

        with _attached(tuple(probes)):
            self.experiment.run_trial(self.config, NamingRecorder(recorder))

    def cost(self) -> Cost:
        """The cost of the trial; raises TypeError for an experiment that declares none."""
        if self.experiment.estimate is None:
            raise TypeError(f"{self.experiment.name} declares no cost")
        return self.experiment.estimate(self.config)


@contextmanager
def _attached(probes: "tuple[Callback, ...]") -> Iterator[None]:
    token = _further.set(probes)
    try:
        yield
    finally:
        _further.reset(token)
