"""A cluster of three machines and an MLflow server: machines and the server are killed, and every point is counted."""

import signal
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from commandline import CommandLine, Said, ended, until
from machines import Machines
from mlflow_server import Points, Server

SEEDS = ["--over", "seed=0,1,2,3"]


@pytest.fixture(scope="module")
def machines(patient: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    made = Machines(patient, tmp_path_factory.mktemp("disk") / "outbox")
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture
def here(machines: Machines, server: Server, patient: dict[str, str], tmp_path: Path) -> CommandLine:
    """The command on the head of the cluster, which has two machines for trials."""
    machines.add(2 - len(machines.workers))
    places = {"RAY_ADDRESS": machines.address, "MLFLOW_TRACKING_URI": server.uri}
    return CommandLine(tmp_path, patient | machines.token | places | {"FEATURELAB_OUTBOX": str(machines.disk)})


def runs_of(here: CommandLine, experiment: str, sweep: str) -> list[Any]:
    return [run for run in here.runs(experiment) if run.data.tags["sweep"] == sweep]


def wait_for_checkpoints(here: CommandLine, sweep: str, finished: int = 0) -> None:
    """Until so many trials are finished, and two others are under way and have checkpoints in the store."""

    def reached() -> bool:
        runs = runs_of(here, "patient/training", sweep)
        under_way = [run.info.run_id for run in runs if run.data.tags["status"] == "running"]
        saved = [run_id for run_id in under_way if here.client.list_artifacts(run_id, "training")]
        return len(saved) == 2 and sum(run.data.tags["status"] == "finished" for run in runs) >= finished

    until(reached, 240)


def check_whole(here: CommandLine, server: Server, said: Said, undisturbed: Points) -> None:
    """Each trial came to its end in its one run, and every point is stored once, with its bits; nothing else is."""
    assert said.code == 0, said.err
    assert "Traceback" not in said.err
    assert "1 trial died as a machine was lost: resuming elsewhere\n" in said.err
    document = said.document
    assert {trial["status"] for trial in document["trials"]} == {"finished"}
    runs = runs_of(here, "patient/training", document["name"])
    assert [run.info.status for run in runs] == ["FINISHED"] * 4
    (moved,) = [run for run in runs if "attempt" in run.data.tags]
    assert moved.data.tags["resumed"].startswith("from step ")
    assert not [tag for run in runs for tag in run.data.tags if tag.startswith("differs/")]
    stored = server.stored(document["name"])
    assert stored == undisturbed
    number = sum(points.total() for points in undisturbed.values())
    twice = sum(points.total() - len(points) for points in stored.values())
    print(f"\n{document['name']}: {number} points to store, {number} stored, {twice} twice")
    assert (number > 1000, twice) == (True, 0)


@pytest.mark.heavy
def test_a_machine_that_dies_with_its_disk_while_the_server_is_away_costs_no_point(
    here: CommandLine, machines: Machines, server: Server, undisturbed: Points
) -> None:
    process = here.start("sweep", "patient/training", *SEEDS, "--name", "both", "--json")
    wait_for_checkpoints(here, "both")
    server.stop()
    time.sleep(1)
    machines.kill()
    time.sleep(7)
    server.start()
    check_whole(here, server, ended(process, timeout=480), undisturbed)


@pytest.mark.heavy
def test_a_map_that_loses_a_machine_has_the_same_cells_with_the_same_values(
    here: CommandLine, machines: Machines
) -> None:
    asked = ["map", "patient/curves", "--over", "pause=0.05,0.1", "--over", "points=20,40", "--json"]
    process = here.start(*asked, "--name", "lost")

    def under_way() -> bool:
        assert process.poll() is None, process.communicate()
        return sum(run.data.tags["status"] == "finished" for run in runs_of(here, "patient/curves", "lost")) >= 3

    until(under_way, 240)
    machines.kill()
    said = ended(process, timeout=480)
    assert said.code == 0, said.err
    assert "died as a machine was lost: resuming elsewhere\n" in said.err
    assert len(said.document["cells"]) == 4
    machines.add()
    assert said.document["cells"] == here(*asked).document["cells"]


def test_machines_are_not_sent_to_a_database_file_that_only_the_head_has(here: CommandLine, machines: Machines) -> None:
    database = f"sqlite:///{here.home}/mlflow.db"
    apart = here.elsewhere(here.home, MLFLOW_TRACKING_URI=database, FEATURELAB_OUTBOX=str(here.home / "outbox"))
    named = CommandLine(here.home, {k: v for k, v in apart.environment.items() if k != "RAY_ADDRESS"})
    asked = [
        (apart, ["sweep", "patient/curves", "--over", "level=1,2"]),
        (named, ["sweep", "patient/curves", "--over", "level=1,2", "--address", machines.address]),
        (apart, ["reproduce", "patient/curves"]),
    ]
    with ThreadPoolExecutor(2) as pool:
        for said in pool.map(lambda each: each[0](*each[1], "--json", code=2), asked):
            assert said.out == ""
            assert said.err.count("\n") == 1
            for named in ("3 machines", database, "MLFLOW_TRACKING_URI"):
                assert named in said.err
    assert list(here.home.iterdir()) == []


@pytest.mark.parametrize("shown", [{}, {"RAY_AUTH_MODE": "token"}, {"RAY_AUTH_TOKEN": "0" * 64}])
def test_a_driver_without_the_token_of_the_cluster_is_told_so_in_one_line(
    featurelab: CommandLine, machines: Machines, shown: dict[str, str], tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    soon = {"RAY_gcs_server_port_wait_time_s": "2"}  # in place of 20 s
    driver = featurelab.elsewhere(tmp_path / "desk", HOME=str(home), **soon, **shown)
    said = driver("sweep", "patient/curves", "--over", "level=1,2", "--address", machines.address, code=2)
    assert said.err.count("\n") == 1
    for named in ("~/.ray/auth_token", "RAY_AUTH_TOKEN", machines.address):
        assert named in said.err
    assert said.out == ""
    assert not list((tmp_path / "desk").iterdir())


@pytest.mark.heavy
def test_a_server_away_for_half_a_minute_and_a_lost_machine_cost_no_point_nor_do_they_when_it_is_repeated(
    here: CommandLine, machines: Machines, server: Server, undisturbed: Points
) -> None:
    process = here.start("sweep", "patient/training", *SEEDS, "--name", "long", "--json")
    wait_for_checkpoints(here, "long")
    server.stop()
    time.sleep(30)
    server.start()
    wait_for_checkpoints(here, "long", finished=2)
    machines.kill()
    said = ended(process, timeout=300)
    check_whole(here, server, said, undisturbed)

    machines.add()
    before = {run.data.tags["sweep"] for run in here.runs("verdicts")}
    process = here.start("rerun", said.document["sweep_run_id"], "--json")

    def begun() -> set[str]:
        assert process.poll() is None, process.communicate()
        return {run.data.tags["sweep"] for run in here.runs("verdicts")} - before

    repeated = until(begun).pop()
    wait_for_checkpoints(here, repeated)
    machines.kill()
    again = ended(process, timeout=300)
    assert again.code == 0, again.err
    assert "1 trial died as a machine was lost: resuming elsewhere\n" in again.err
    assert (again.document["identical"], again.document["differences"]) == (True, [])
    assert again.document["points_compared"] == sum(points.total() for points in undisturbed.values())
    assert server.stored(repeated) == undisturbed


@pytest.mark.heavy
def test_a_figure_is_reproduced_and_judged_though_a_machine_is_lost(
    here: CommandLine, machines: Machines, server: Server
) -> None:
    process = here.start("reproduce", "patient/curves", "--json")
    here.wait_for_point("patient/curves", "best.loss.val", runs=2)
    here.wait_for_point("patient/curves", "loss/val", runs=4)
    machines.kill()
    said = ended(process, timeout=300)
    assert said.code == 0, said.err
    assert "resuming elsewhere\n" in said.err
    (one,) = said.document["experiments"]
    assert [claim["status"] for claim in one["claims"]] == ["holds"]
    (name,) = [run.data.tags["sweep"] for run in here.runs("verdicts") if run.info.run_id == one["sweep_run_id"]]
    runs = runs_of(here, "patient/curves", name)
    assert [run.info.status for run in runs] == ["FINISHED"] * 6
    grid = [(level, seed) for level in (1.0, 2.0) for seed in (0, 1, 2)]
    assert server.stored(name) == {
        trial: Counter(("loss/val", step, level + 1 / (step + seed)) for step in range(1, 41))
        for trial, (level, seed) in enumerate(grid)
    }


@pytest.mark.heavy
def test_what_was_begun_on_one_machine_is_not_gone_on_with_on_several_without_a_server(
    here: CommandLine, machines: Machines
) -> None:
    database = f"sqlite:///{here.home}/mlflow.db"
    apart = here.elsewhere(here.home, MLFLOW_TRACKING_URI=database, FEATURELAB_OUTBOX=str(here.home / "outbox"))
    alone = CommandLine(here.home, {k: v for k, v in apart.environment.items() if not k.startswith("RAY_")})
    axes = ["--over", "points=3", "--over", "level=1,2"]
    made = alone("sweep", "patient/curves", *axes, "--name", "here", "--json").document
    runs = [(run.info.run_id, dict(run.data.tags)) for run in apart.runs("patient/curves")]
    for command in (["sweep", "patient/curves", "--resume", "here"], ["rerun", made["sweep_run_id"]]):
        said = apart(*command, code=2)
        assert said.err.startswith(f"featurelab: the cluster has 3 machines, which cannot write to {database}: ")
        assert said.err.count("\n") == 1
    assert [(run.info.run_id, dict(run.data.tags)) for run in apart.runs("patient/curves")] == runs
    assert len(apart.runs("verdicts")) == 1


@pytest.mark.heavy
def test_an_interrupted_sweep_leaves_no_point_behind_on_any_machine(
    here: CommandLine, machines: Machines, server: Server, undisturbed: Points
) -> None:
    process = here.start("sweep", "patient/training", *SEEDS, "--name", "interrupted", "--json")
    wait_for_checkpoints(here, "interrupted")
    process.send_signal(signal.SIGINT)
    said = ended(process, timeout=120)
    assert (said.code, said.out) == (130, "")
    for machine in machines.workers:
        left = Path(f"/proc/{machine.pid}/root{machines.disk}")  # as that machine sees it
        assert list(left.glob("*.jsonl")) == []
    runs = runs_of(here, "patient/training", "interrupted")
    assert {run.info.status for run in runs} <= {"KILLED", "FINISHED"}
    here("sweep", "patient/training", "--resume", "interrupted", "--json")
    assert server.stored("interrupted") == undisturbed
