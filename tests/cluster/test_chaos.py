"""The chaos run plans reproducibly and notices points that are lost, doubled or different."""

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
STORES = ("sqlite", "server", "postgres")


@pytest.fixture
def chaos(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the package, which is imported from the root of the repository."""
    monkeypatch.syspath_prepend(ROOT)
    import tests.chaos.audit
    import tests.chaos.plan

    return tests.chaos


def stored(chaos: Any, points: int, **tags: str) -> Any:
    """Return a run with the first points of a trial."""
    config = '{"kind": "closed", "level": 1.0, "seed": 0}'
    run = chaos.audit.Run("r", "FINISHED", 0, {"config": config, "status": "finished"} | tags)
    for point, value in chaos.audit.expected_points(("closed", 1.0, 0), points, {}).items():
        run.points[point].append(value)
    return run


def audited(chaos: Any, *runs: Any) -> Any:
    return chaos.audit.audit(runs, [("closed", 1.0, 0)], 10, {})


def test_a_seed_decides_the_faults_and_each_meets_each_store_once(chaos: Any) -> None:
    from tests.chaos.faults import CATALOGUE

    each = {(name, store) for name, fault in CATALOGUE.items() for store in fault.stores}
    assert len(each) >= 200
    episodes = chaos.plan.planned(1, len(each), STORES)
    assert episodes == chaos.plan.planned(1, len(each), STORES)
    assert episodes != chaos.plan.planned(2, len(each), STORES)
    met = Counter((name, episode.store) for episode in episodes for name in episode.faults)
    assert set(met) == each
    assert max(met.values()) == 1
    more = chaos.plan.planned(1, len(each) + 50, STORES)
    assert sum(len(episode.faults) for episode in more) == len(each) + 50


def test_faults_that_need_their_own_disk_do_not_meet_those_that_must_not_have_one(chaos: Any) -> None:
    from tests.chaos.faults import CATALOGUE

    for seed in range(20):
        for episode in chaos.plan.planned(seed, 200, STORES):
            needs_disk = {CATALOGUE[name].disk for name in episode.faults}
            assert not {True, False} <= needs_disk


def test_a_point_that_is_lost_doubled_or_different_is_counted(chaos: Any) -> None:
    assert audited(chaos, stored(chaos, 10)).clean
    assert audited(chaos, stored(chaos, 9)).lost == 2
    assert audited(chaos).lost == 20
    doubled = stored(chaos, 10)
    doubled.points["twice", 3].append(doubled.points["twice", 3][0])
    assert audited(chaos, doubled).doubled == 1
    assert audited(chaos, stored(chaos, 10), stored(chaos, 10)).doubled == 20
    different = stored(chaos, 10)
    different.points["twice", 3][0] += 2**-51
    assert audited(chaos, different).different == 1


def test_points_destroyed_by_the_fault_count_separately_if_their_run_is_tagged(chaos: Any) -> None:
    counts = audited(chaos, stored(chaos, 9, damaged="1 line"))
    assert (counts.lost, counts.lost_and_tagged) == (0, 2)


def test_a_trial_stopped_by_the_scheduler_must_be_complete_up_to_its_last_step(chaos: Any) -> None:
    assert audited(chaos, stored(chaos, 4, status="stopped")).clean
    gap = stored(chaos, 4, status="stopped")
    del gap.points["loss/val", 2]
    assert audited(chaos, gap).lost == 1


def test_processes_are_found_by_the_folder_that_their_environment_names(chaos: Any, tmp_path: Path) -> None:
    import subprocess

    from tests.chaos import processes

    environment = os.environ | {"CHAOS_HOME": f"{tmp_path}/"}
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, env=environment) as reader:
        # A process has its environment only once its program runs, and an answer shows that it does.
        assert reader.stdin is not None
        assert reader.stdout is not None
        reader.stdin.write(b"!")
        assert reader.stdout.read(1) == b"!"
        assert processes.started_in(tmp_path, "cat") == [reader.pid]
        assert processes.started_in(tmp_path / "other") == []
        assert processes.end_all(tmp_path) == 1
    assert processes.started_in(tmp_path) == []
