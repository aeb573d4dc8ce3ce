"""A sweep that is being run, from another machine or another folder of this one, is not run a second time."""

import shutil
import subprocess
import sys
import time

import pytest
from mlflow_server import Server

from featurelab.pipelines.engine.errors import RequestError
from featurelab.pipelines.engine.experiment.catalogue import registry
from featurelab.pipelines.engine.sweep import ownership
from featurelab.pipelines.engine.sweep.begin import open_sweep, resume_sweep
from featurelab.pipelines.engine.sweep.ownership import driver_tags, heartbeat, where_run
from featurelab.pipelines.engine.sweep.plan import plan_search
from featurelab.tracking.outbox.locks import exclusive_lock
from featurelab.tracking.store.connect import attach

TOKEN = "0123456789abcdef" * 2
PLAN = {"scale": "laptop", "name": "night"}


@pytest.fixture
def sweep(store):
    experiment = registry.find("neural_feature_ansatz/init_scale")
    return open_sweep(plan_search(experiment, {}, 1, experiment.laptop, **PLAN), "night", store)


@pytest.fixture
def place(sweep, store, tmp_path):
    """Where the sweep is being run once its run has these tags."""

    def found(**tags):
        store.set_tags(sweep, tags)
        return where_run(sweep, store.get_run(sweep).data.tags, store, tmp_path / "outbox")

    return found


def ago(seconds):
    return f"{time.time() - seconds:.0f}"


def test_a_driver_on_another_machine_counts_as_long_as_it_gives_signs_of_life(place):
    here = f"gpu-07.local 12 {TOKEN}"
    assert place(driver=here, seen=ago(30)).startswith("on gpu-07.local, process 12 (last seen 3")
    assert place(seen=ago(-30)).startswith("on gpu-07.local"), "a clock that is ahead"
    assert place(seen=ago(120)) == ""
    assert place(seen=ago(1), status="killed") == "", "it has ended, and said so"


def test_a_driver_on_this_machine_counts_as_long_as_its_process_lives(place):
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    here = f"{ownership._host()} {other.pid} {TOKEN}"
    assert place(driver=here, seen=ago(1)).startswith(f"on {ownership._host()}, process {other.pid}")
    other.communicate()
    assert place() == ""
    assert place(**driver_tags()) == "", "this process is not another one"


def test_the_lock_in_the_outbox_needs_no_sign_of_life(sweep, place, tmp_path):
    with exclusive_lock(tmp_path / "outbox", sweep):
        assert place(seen="0") == "by another process"


@pytest.mark.parametrize("driver", ["", "gpu", f"gpu 12 {TOKEN}0", f"' or 1 12 {TOKEN}", "gpu x y", f"a/b 1 {TOKEN}"])
@pytest.mark.parametrize("seen", ["now", "", "nan", "-1", "inf"])
def test_a_tag_that_no_driver_wrote_stands_for_none(place, driver, seen):
    assert place(driver=driver) == ""
    assert place(driver=f"gpu 12 {TOKEN}", seen=seen) == ""


def test_one_sign_of_life_speaks_for_all_sweeps_of_a_command(sweep, store, place):
    assert place(driver=f"gpu-07 12 {TOKEN}", seen=ago(500)) == ""
    experiment = registry.find("neural_feature_ansatz/init_scale")
    first = open_sweep(plan_search(experiment, {}, 1, experiment.laptop, **PLAN), "evening", store)
    store.set_tags(first, {"driver": f"gpu-07 12 {TOKEN}", "seen": ago(5)})
    assert place().startswith("on gpu-07")


def seen(store, run_id):
    return float(store.get_run(run_id).data.tags["seen"])


def sign(store, run_id):
    """The next sign of life, 0 where none comes."""
    store.set_tags(run_id, {"seen": "0"})
    deadline = time.monotonic() + 10
    while not seen(store, run_id) and time.monotonic() < deadline:
        time.sleep(0.05)
    return seen(store, run_id)


def test_signs_of_life_come_until_the_end(sweep, store, monkeypatch):
    monkeypatch.setattr(ownership, "BEAT", 0.05)
    with heartbeat(sweep, store):
        assert sign(store, sweep) == pytest.approx(time.time(), abs=5)
    time.sleep(0.3)
    store.set_tags(sweep, {"seen": "0"})
    time.sleep(0.3)
    assert seen(store, sweep) == 0


def test_signs_of_life_come_again_once_a_server_that_was_killed_is_back(template, tmp_path, monkeypatch):
    monkeypatch.setattr(ownership, "BEAT", 0.3)
    shutil.copy(template, tmp_path / "mlflow.db")
    server = Server(tmp_path)
    server.start()
    try:
        store = attach(server.uri)
        run_id = store.start_run("verdicts", "night")
        with heartbeat(run_id, store):
            assert sign(store, run_id)
            server.stop()
            time.sleep(0.5)
            server.start()
            assert sign(store, run_id)
    finally:
        server.stop()


def test_a_sweep_that_is_run_elsewhere_is_not_resumed(sweep, store, tmp_path):
    store.set_tags(sweep, {"driver": f"gpu-07 12 {TOKEN}", "seen": ago(5)})
    tags = store.get_run(sweep).data.tags
    experiment = registry.find("neural_feature_ansatz/init_scale")
    with pytest.raises(RequestError, match="the sweep night is still being run on gpu-07, process 12"):
        resume_sweep(experiment, "night", store, outbox=tmp_path / "outbox")
    assert store.get_run(sweep).data.tags == tags
