"""The controls that the engine implements: they destroy what a claim should depend on."""

from collections.abc import Iterator
from contextlib import contextmanager

from featurelab.modules.data import permuted_labels
from featurelab.modules.learners import withheld_updates
from featurelab.pipelines.engine.experiment.config import Config, stream_seed


@contextmanager
def controlled(config: Config) -> Iterator[None]:
    """Inside, the setting `control` has its effect; an experiment's own control is implemented by its trial."""
    match getattr(config, "control", "none"):
        case "permuted_labels":
            with permuted_labels(stream_seed(config.seed, "permuted labels")):
                yield
        case "untrained":
            with withheld_updates():
                yield
        case _:
            yield
