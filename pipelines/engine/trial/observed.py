"""Another experiment's trial as material: its network, data and training, with further probes on the fit."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from featurelab.pipelines.engine.experiment.cost import Cost
from featurelab.pipelines.engine.experiment.registry import find

if TYPE_CHECKING:
    from pytorch_lightning.callbacks import Callback

    from featurelab.tracking import Recorder

_further: "ContextVar[tuple[Callback, ...]]" = ContextVar("further", default=())


def further() -> "tuple[Callback, ...]":
    """Callbacks that `Observed` adds to every fit of the trial that it runs."""
    return _further.get()


class Observed:
    """The trial of experiment `name`, its laptop preset with some settings changed; those that it has not are ignored.

    With `small` it is of the sizes with which the experiment is checked.

    Raises RequestError for an unknown experiment, and for values that its settings do not take.
    """

    def __init__(self, name: str, *, small: bool = False, **changes: Any) -> None:
        self.experiment = find(name)
        preset = self.experiment.small_configs()[0] if small else self.experiment.laptop
        known = type(preset).model_fields
        self.config = preset.but(**{key: value for key, value in changes.items() if key in known})

    def run(self, probes: "Sequence[Callback]", recorder: "Recorder") -> None:
        """Run it with `probes` on its fit.

        What the trial measures itself is not recorded; its datasets are, and probes keep what they measure in
        `history`. Raises TypeError for an experiment without a trial.
        """
        if self.experiment.run_trial is None:
            raise TypeError(f"{self.experiment.name} declares no trial")
        from featurelab.tracking.outbox.null import NamingRecorder  # imports MLflow, which a declaration must not

        with _attached(tuple(probes)):
            self.experiment.run_trial(self.config, NamingRecorder(recorder))

    def cost(self) -> Cost:
        """What it takes; raises TypeError for an experiment that declares no estimate."""
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
