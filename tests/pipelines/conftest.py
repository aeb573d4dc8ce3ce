"""What tests of systems share; it also puts this folder on the path, for `madeup` and its neighbours."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def few_rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few rows of the datasets whose pictures several systems read, written once for all of them."""
    pytest.importorskip("datasets")
    from publicfiles import write_public

    root = tmp_path_factory.mktemp("public")
    for name in ("celeba", "cifar10", "cifar100", "mnist", "svhn"):
        write_public(root, name)
    return root


@pytest.fixture(scope="module")
def shared_trials() -> Iterator[None]:
    """Figures of a module that share a trial, the same function with the same settings, run it once for all of them."""
    from featurelab.pipelines.engine.trial.run import perform
    from featurelab.pipelines.engine.verdict import check

    recorded: dict[Any, dict[str, Any]] = {}

    def perform_once(experiment: Any, config: Any, recorder: Any) -> None:
        trial = experiment.run_trial, type(config), repr(config.model_dump())
        if trial not in recorded:
            perform(experiment, config, recorder)
            recorded[trial] = dict(vars(recorder))
        for name, value in recorded[trial].items():  # in Python 3.13.0 an update of vars() may not reach the recorder
            setattr(recorder, name, value)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(check, "perform", perform_once)
        yield
