"""Which interrupted reproductions a command resumes: its own, made by the same source, that nobody runs."""

import re
import time

import pytest

from featurelab.pipelines.engine.experiment.catalogue import registry
from featurelab.pipelines.engine.sweep.begin import open_sweep
from featurelab.pipelines.engine.sweep.plan import Plan
from featurelab.pipelines.engine.trial.record import open_run
from featurelab.pipelines.engine.verdict import interrupted
from featurelab.pipelines.engine.verdict.interrupted import digest, find_interrupted
from featurelab.tracking.outbox.locks import exclusive_lock

NAMES = ["neural_feature_ansatz/init_scale", "neural_feature_ansatz/init_scale_decay_1"]


@pytest.fixture
def plans():
    found = map(registry.find, NAMES)
    return [Plan.of(e, e.configs("laptop")[:3], e.varied("laptop"), "laptop", kind="reproduce") for e in found]


def opened(plan, store, status, command="c1", done=0):
    """A sweep of the plan as an interrupted command leaves it, its first trials done and the next one cut short."""
    plan = plan.but(tags={"command": command, "plan_digest": digest(plan)})
    name = f"{plan.experiment.partition('/')[2]}-{command}"
    run_id = open_sweep(plan, name, store)
    store.set_tags(run_id, {"status": status, "seconds": "12.5"})
    for index in range(done + 1):
        details = {"tags": {"sweep": name, "sweep_run_id": run_id}, "scale": "laptop", "name": "", "axes": plan.axes}
        place = {"index": index, "status": "finished" if index < done else "killed"}
        open_run(plan.declared, plan.config(index), store, place=place, **details)
    return run_id


def test_without_anything_interrupted_everything_is_run(store, plans, tmp_path, capsys):
    assert find_interrupted(plans, store, tmp_path).missing == plans
    opened(plans[0], store, "finished", done=2)
    assert find_interrupted(plans, store, tmp_path).missing == plans
    assert capsys.readouterr().err == ""


def test_what_is_missing_of_the_same_command_is_run_and_it_is_said_in_one_line(store, plans, tmp_path, capsys):
    complete = opened(plans[0], store, "finished", done=2)
    cut = opened(plans[1], store, "killed", done=1)
    found = find_interrupted(plans, store, tmp_path)
    (sweep,) = found.resumed
    assert (sweep.run_id, list(sweep.indices), list(sweep.resumed), sweep.seconds) == (cut, [1, 2], [1], 12.5)
    assert (found.complete, found.missing, found.command) == ([complete], [], "c1")
    assert capsys.readouterr().err == (
        "resuming an interrupted reproduction: 1 of 3 trials done, 1 cut short, 1 more figure complete"
        " (--fresh begins anew)\n"
    )


@pytest.mark.parametrize("status", ["finished", "incomplete"])
def test_a_newer_sweep_that_came_to_its_end_is_not_passed_by(store, plans, tmp_path, status):
    opened(plans[0], store, "killed", "c1")
    opened(plans[0], store, status, "c2", done=2)
    assert find_interrupted(plans[:1], store, tmp_path).missing == plans[:1]


def test_a_sweep_that_is_still_being_run_is_left_alone(store, plans, tmp_path):
    with exclusive_lock(tmp_path, opened(plans[0], store, "running")):
        assert find_interrupted(plans[:1], store, tmp_path).missing == plans[:1]
    assert len(find_interrupted(plans[:1], store, tmp_path).resumed) == 1, "its process died"


def test_a_sweep_that_another_machine_runs_is_left_alone_too(store, plans, tmp_path, capsys):
    run_id = opened(plans[0], store, "running")
    store.set_tags(run_id, {"driver": f"gpu-07 12 {'0' * 32}", "seen": str(time.time())})
    assert find_interrupted(plans[:1], store, tmp_path).missing == plans[:1]
    said = capsys.readouterr().err
    assert said.startswith("neural_feature_ansatz/init_scale is being run on gpu-07, process 12 (last seen ")
    assert re.search(r"\d s ago\): this command runs it too\n$", said)
    store.set_tags(run_id, {"seen": str(time.time() - 100)})
    assert len(find_interrupted(plans[:1], store, tmp_path).resumed) == 1, "that machine is gone"


def test_other_settings_or_another_source_are_not_gone_on_with(store, plans, tmp_path, monkeypatch):
    opened(plans[0], store, "killed")
    other = plans[0].but(configs=[config | {"lr": 0.5} for config in plans[0].configs])
    assert find_interrupted([other], store, tmp_path).missing == [other]
    sources = interrupted._sources(plans[0].declared.run_trial)
    assert {"fit.py", "init_scale.py", "chain.py", "probe.py", "record.py"} <= {path.name for path in sources}
    edited = tmp_path / "edited.py"
    edited.write_text("x = 1")
    monkeypatch.setattr(interrupted, "_sources", lambda trial: sources | {edited})
    assert find_interrupted(plans[:1], store, tmp_path).missing == plans[:1]
