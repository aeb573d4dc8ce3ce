"""Foreign answers, impossible points, damaged journals: what can be stored is stored, and all else is said."""

import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from between import Between, writes
from commandline import CommandLine, sent, until
from mlflow.entities import Run
from mlflow_server import Server

FOREIGN = (200, b'{"hello": 1}', 0)
TROUBLES, CURVES = "stranger/troubles", "stranger/curves"


@pytest.fixture
def between(server: Server) -> Iterator[Between]:
    with Between(server.uri) as proxy:
        yield proxy


@pytest.fixture
def over_http(featurelab: CommandLine, between: Between) -> CommandLine:
    return featurelab.elsewhere(featurelab.home / "desk", MLFLOW_TRACKING_URI=between.uri)


@pytest.fixture
def here(featurelab: CommandLine) -> CommandLine:
    return featurelab.desk("desk")


def outbox(here: CommandLine) -> Path:
    return here.home / ".featurelab" / "outbox"


def the_run(here: CommandLine, experiment: str) -> Run:
    (run,) = here.runs(experiment)
    return run


def journal_of_a_killed_run(here: CommandLine) -> tuple[str, Path]:
    """What a run leaves that is killed after ten points, before any of them was sent."""
    here("run", TROUBLES, "ending=die", "points=10", code=-9)
    (journal,) = outbox(here).glob("*.jsonl")
    return journal.stem, journal


def steps(here: CommandLine, run_id: str) -> list[int]:
    return [step for step, _ in here.history(run_id, "loss/val")]


def test_writes_that_a_proxy_answers_with_an_object_of_its_own_are_sent_again(
    over_http: CommandLine, between: Between
) -> None:
    asked: list[str] = []

    def every_second(method: str, path: str) -> bool:
        if path.endswith(("/log-batch", "/update", "/create")):
            asked.append(path)
            return len(asked) % 2 == 1
        return False

    between.garbled, between.chosen = [FOREIGN] * 4, every_second
    said = over_http("run", CURVES, "steps=120", "pause=0.01", "--json").document
    assert between.garbled == [], f"answered too few of {asked}"
    run = over_http.client.get_run(said["run_id"])
    assert (said["status"], run.info.status, run.data.tags["status"]) == ("finished", "FINISHED", "finished")
    assert over_http.history(run.info.run_id, "loss/val") == [(step, 1 / step) for step in range(1, 121)]
    assert os.listdir(outbox(over_http)) == []


def sent_later(here: CommandLine, between: Between, run_id: str, expected: list[int]) -> None:
    """One `sync` sends nothing while the proxy answers all writes itself; once it does not, one sends everything."""
    assert sent(here, code=1) == (0, 0, 1)
    assert (outbox(here) / f"{run_id}.jsonl").exists()
    between.garbled = []
    assert sent(here) == (1, 0, 0)
    assert os.listdir(outbox(here)) == []
    assert steps(here, run_id) == expected


@pytest.mark.heavy
def test_a_journal_is_kept_as_long_as_a_proxy_answers_every_write_itself(
    over_http: CommandLine, between: Between
) -> None:
    run_id, _ = journal_of_a_killed_run(over_http)
    between.garbled, between.chosen = [FOREIGN] * 10_000, writes
    sent_later(over_http, between, run_id, list(range(10)))
    assert over_http.client.get_run(run_id).info.status == "KILLED"


@pytest.mark.heavy
def test_a_run_whose_writes_are_all_answered_by_a_proxy_says_that_they_are_kept(
    over_http: CommandLine, between: Between
) -> None:
    before = len(over_http.runs(CURVES))
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(over_http, "run", CURVES, "level=3", "steps=100", "pause=0.05", "--json", code=1)
        run = over_http.wait_for_point(CURVES, "loss/val", runs=before + 1)[-1]
        between.garbled, between.chosen = [FOREIGN] * 10_000, writes
        said = running.result()
    assert said.err.endswith("what was recorded is kept until featurelab sync\n")
    assert over_http.client.get_run(run.info.run_id).info.status == "RUNNING"
    sent_later(over_http, between, run.info.run_id, list(range(1, 101)))
    assert over_http.client.get_run(run.info.run_id).info.status == "FINISHED"


def test_a_step_beyond_64_bits_fails_the_trial_and_is_named_with_its_metric(here: CommandLine) -> None:
    said = here("run", TROUBLES, "ending=beyond", code=1)
    run = the_run(here, TROUBLES)
    reason = run.data.tags["reason"]
    assert f"step {2**70} of 'loss/val' is out of range" in reason
    assert reason in " ".join(said.err.split())
    assert (run.info.status, run.data.tags["status"]) == ("FAILED", "failed")
    assert steps(here, run.info.run_id) == [0, 1, 2]
    assert os.listdir(outbox(here)) == []


def test_an_impossible_line_is_set_aside_and_all_others_are_sent(here: CommandLine) -> None:
    run_id, journal = journal_of_a_killed_run(here)
    *lines, last = journal.read_text().splitlines()
    impossible = {"t": 1, "s": 2**80, "m": {"loss/val": 0.5}}
    journal.write_text("\n".join([*lines, json.dumps(impossible), last]) + "\n")
    said = here("sync")
    assert "1 runs sent, 0 still being recorded, 0 left unsent\n" in said.err
    assert "metric loss/val at step " in said.err
    assert "rejected.jsonl" in said.err
    run = here.client.get_run(run_id)
    assert (run.info.status, steps(here, run_id)) == ("KILLED", list(range(10)))
    assert run.data.tags["rejected"].startswith("metric loss/val at step ")
    kept = Path(here.client.download_artifacts(run_id, "rejected.jsonl", str(here.home))).read_text()
    assert json.loads(kept) == impossible
    assert os.listdir(outbox(here)) == []
    assert sent(here) == (0, 0, 0)


def test_a_damaged_journal_is_sent_without_the_line_and_kept_until_it_is_let_go_of(here: CommandLine) -> None:
    run_id, journal = journal_of_a_killed_run(here)
    lines = journal.read_text().splitlines()
    (fourth,) = (number for number, line in enumerate(lines) if '"s":4,' in line)
    lines[fourth] = lines[fourth][:-9]
    journal.write_text("\n".join(lines) + "\n")
    for number in (1, 0):
        said = here("sync", code=1)
        first, second = said.err.splitlines()
        assert first.startswith(f"{number} runs sent")
        assert second.startswith(f"  {run_id}: ")
        assert second.endswith(f"featurelab sync --discard {run_id}")
        assert os.listdir(outbox(here)) == [f"{run_id}.damaged.jsonl"]
    run = here.client.get_run(run_id)
    assert (run.info.status, steps(here, run_id)) == ("KILLED", [step for step in range(10) if step != 4])
    assert run.data.tags["damaged"].startswith("1 line of the journal")
    here("sync", "--discard", run_id)
    assert os.listdir(outbox(here)) == []
    here("sync")


def cut(journal: Path) -> None:
    os.truncate(journal, journal.stat().st_size - 10)


def overwrite(journal: Path) -> None:
    content = journal.read_bytes()
    with journal.open("r+b") as file:
        file.seek(content.rfind(b"\n", 0, -1) + 1)
        file.write(b"#garbage\xff\x00")


@pytest.mark.parametrize("spoil", [cut, overwrite])
def test_a_run_whose_journal_is_spoilt_while_it_records_fails_and_says_so(
    here: CommandLine, spoil: Callable[[Path], None]
) -> None:
    def journal_with_points() -> Path | None:
        return next((path for path in outbox(here).glob("*.jsonl") if path.read_bytes().count(b'"m":') > 2), None)

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(here, "run", CURVES, "steps=40", "pause=0.1", code=1)
        spoil(until(journal_with_points))
        said = running.result()
    run = the_run(here, CURVES)
    run_id, reason = run.info.run_id, run.data.tags["reason"]
    assert (run.info.status, run.data.tags["status"]) == ("FAILED", "failed")
    assert "journal" in reason
    assert "journal" in said.err
    assert "Traceback" not in said.err
    assert run.data.tags["damaged"].startswith("1 line of the journal")
    assert os.listdir(outbox(here)) == [f"{run_id}.damaged.jsonl"]
    stored = steps(here, run_id)
    missing = set(range(1, stored[-1] + 1)) - set(stored)
    assert len(missing) == (spoil is overwrite), "only the line that was spoilt"


def test_a_trial_that_closes_its_file_descriptors_fails_and_says_why(here: CommandLine) -> None:
    said = here("run", TROUBLES, "ending=close", code=1)
    reason = "the trial closed file descriptors that it had not opened"
    assert reason in " ".join(said.err.split())
    run = the_run(here, TROUBLES)
    assert (run.info.status, run.data.tags["status"]) == ("FAILED", "failed")
    assert reason in run.data.tags["reason"]
    assert steps(here, run.info.run_id) == [0, 1, 2]
    assert os.listdir(outbox(here)) == []


@pytest.mark.parametrize("odd", ["x" * 300, "é" * 200, "../../x", "*", ""])
def test_what_is_no_run_cannot_be_let_go_of(featurelab: CommandLine, odd: str) -> None:
    outbox(featurelab).mkdir(parents=True)
    (outbox(featurelab) / "x.jsonl").touch()
    said = featurelab("sync", "--discard", odd, code=2)
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert "is not the id of a run: featurelab sync lists those that wait" in said.err
    assert os.listdir(outbox(featurelab)) == ["x.jsonl"]
