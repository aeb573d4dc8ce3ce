"""Every figure at its small size on a GPU: it records what it records on the CPU, and the same bits twice."""

import pytest
import torch

from featurelab.pipelines.engine.experiment.catalogue import registry
from featurelab.pipelines.engine.experiment.experiment import Experiment
from featurelab.pipelines.engine.trial.run import perform
from featurelab.pipelines.engine.verdict.check import MemoryRecorder

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]


def curves_of_a_small_trial(experiment: Experiment, device: str) -> dict[str, dict[int, float]]:
    configs = experiment.small_configs()
    recorder = MemoryRecorder()
    perform(experiment, configs[len(configs) // 2].but(device=device), recorder)
    return recorder.curves


@pytest.mark.parametrize("system", registry.systems())
def test_every_figure_runs_on_a_gpu(system):
    problems = []
    for experiment in registry.experiments(system):
        try:
            on_cpu, once, again = (curves_of_a_small_trial(experiment, device) for device in ("cpu", "gpu", "gpu"))
        except Exception as error:
            problems.append(f"{experiment.name}: {type(error).__name__}: {error}")
            continue
        # what is a rounding error on one device may be zero on the other, of which there is no correlation
        expected = {name for name, curve in on_cpu.items() if any(abs(value) > 1e-12 for value in curve.values())}
        if lost := sorted(expected - set(once)):
            problems.append(f"{experiment.name}: nothing recorded of {', '.join(lost)}")
        changed = sorted(name for name in once.keys() & again.keys() if repr(once[name]) != repr(again[name]))
        changed = [name for name in changed if not name.startswith(("seconds/", "speedup/"))]
        if changed:
            problems.append(f"{experiment.name}: other bits the second time in {', '.join(changed)}")
    assert not problems, "\n".join(problems)
