"""How GPUs and CPUs are shared out: to trials, and within a trial to its processes."""

import gc
import weakref

import pytest
import torch

from featurelab.pipelines.engine.errors import RequestError
from featurelab.pipelines.engine.sweep.plan import Plan
from featurelab.pipelines.engine.sweep.ray.sharing import requests
from featurelab.pipelines.engine.sweep.resources import Resources
from featurelab.pipelines.engine.trial.ending import out_of_gpu_memory
from featurelab.pipelines.engine.trial.process import sharing_memory

SAID = (
    "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 79.10 GiB of which 5.25 GiB is "
    "free. Including non-PyTorch memory, this process has 73.84 GiB memory in use."
)


@pytest.mark.parametrize(
    ("asked", "shared"),
    [
        ({}, (1, 0, 1)),
        ({"cpus": 4}, (4, 0, 1)),
        ({"gpus": 0.25}, (1, 0.25, 1)),
        ({"gpus": 2}, (1, 1, 2)),
        ({"gpus": 4, "cpus": 8}, (2, 1, 4)),
        ({"gpus": 4, "workers": 4, "cpus": 2}, (0.5, 1, 4)),
        ({"workers": 3}, (1, 0, 3)),
    ],
)
def test_what_a_trial_gets_is_shared_out_to_its_workers(asked, shared):
    found = Resources.of_trial(**asked)
    assert (found.cpus, found.gpus, found.workers) == shared


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"gpus": 1.5}, "--gpus-per-trial 1.5: a trial has a share of one GPU, or one worker on each of several GPUs"),
        ({"gpus": 4, "workers": 2}, "--gpus-per-trial 4 --workers-per-trial 2: a trial has a share of one GPU"),
        ({"gpus": 1, "workers": 2}, "--gpus-per-trial 1 --workers-per-trial 2: a trial has a share of one GPU"),
        ({"gpus": -1}, "--gpus-per-trial -1 must not be below 0"),
        ({"gpus": float("nan")}, "--gpus-per-trial nan must not be below 0"),
        ({"cpus": 0}, "--cpus-per-trial 0 must be above 0"),
        ({"workers": 0}, "--workers-per-trial 0 must be above 0"),
        ({"timeout": float("inf")}, "--trial-timeout inf must be above 0"),
    ],
)
def test_shares_that_cannot_be_are_refused_in_one_line(asked, says):
    with pytest.raises(RequestError) as caught:
        Resources.of_trial(**asked)
    assert str(caught.value).startswith(says)
    assert "\n" not in str(caught.value)


def test_a_trial_that_computes_on_the_cpu_leaves_the_gpu_to_others():
    configs = [{"device": "auto"}, {"device": "cpu"}, {"device": "gpu"}, {}]
    resources = Resources(cpus=2, gpus=0.5)
    plan = Plan(experiment="s/e", configs=configs, axes=[], scale="laptop", resources=resources)
    request = requests({7: plan})
    drawn = [request({"trial": (7, 4, {"device": device})}).required_resources for device in ("cpu", "auto")]
    assert drawn == [{"CPU": 2}, {"CPU": 2, "GPU": 0.5}]
    assert [request({"trial": (7, index, None)}).required_resources for index in range(4)] == [
        {"CPU": 2, "GPU": 0.5},
        {"CPU": 2},
        {"CPU": 2, "GPU": 0.5},
        {"CPU": 2, "GPU": 0.5},
    ]


def test_gpu_memory_that_ran_out_is_called_that_with_what_was_asked_and_what_was_free():
    reason = out_of_gpu_memory(torch.OutOfMemoryError(SAID))
    assert reason == (
        "out of GPU memory: Tried to allocate 20.00 GiB. "
        "GPU 0 has a total capacity of 79.10 GiB of which 5.25 GiB is free."
    )
    assert out_of_gpu_memory(torch.OutOfMemoryError("Allocation on device")) == "out of GPU memory"
    assert out_of_gpu_memory(RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling")) == "out of GPU memory"
    assert out_of_gpu_memory(RuntimeError("CUDA error: out of memory\nCUDA kernel errors")) == "out of GPU memory"
    for other in (MemoryError("out of memory"), RuntimeError("CUDA error: device-side assert triggered")):
        assert out_of_gpu_memory(other) == ""


def test_a_trial_is_held_to_its_share_of_the_memory_and_gives_back_what_it_cached(monkeypatch):
    called = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", lambda share: called.append(share))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: called.append("emptied"))
    with pytest.raises(torch.OutOfMemoryError), sharing_memory(0.25):
        raise torch.OutOfMemoryError(SAID)
    with sharing_memory(0):
        pass
    assert called == [0.25, "emptied"]


def test_what_a_trial_leaves_in_circles_is_gone_before_the_next_one():
    class Held:
        pass

    gc.disable()  # collections of the interpreter's own would do it now and then
    try:
        with sharing_memory(0):
            one, other = Held(), Held()
            one.other, other.one = other, one
            left = weakref.ref(one)
            del one, other
            assert left() is not None
        assert left() is None
    finally:
        gc.enable()
        gc.unfreeze()
