"""What is interrupted says in one line how it continues, and the command that it prints does that when pasted."""

import os
import pty
import re
import shlex
import signal
import subprocess
from pathlib import Path

import pytest
from commandline import CommandLine, Process, ended, until
from warm import FEATURELAB

CURVES = "stranger/curves"
CONTINUE = re.compile(
    r"featurelab: (interrupted|terminated); what was recorded is kept\. Continue with: (featurelab .*)"
)


def interrupted(process: Process, number: signal.Signals) -> list[str]:
    """The arguments of the command that an interrupted one prints in its last line."""
    process.send_signal(number)
    said = ended(process)
    assert (said.code, said.out) == (128 + number, "")
    *before, last = said.err.splitlines()
    found = CONTINUE.fullmatch(last)
    assert found, said.err
    assert not [line for line in before if line.startswith("featurelab: ")]
    assert found[1] == ("interrupted" if number == signal.SIGINT else "terminated")
    return shlex.split(found[2])[1:]


def test_an_interrupted_sweep_without_a_name_prints_the_command_that_resumes_it_each_time(lab: CommandLine) -> None:
    here = lab.desk("unnamed")
    address = here.environment.pop("RAY_ADDRESS")
    axes = ["--over", "seed=0,1", "steps=60", "pause=0.1"]
    process = here.start("sweep", CURVES, *axes, "--address", address)
    here.wait_for_point(CURVES, "loss/val")
    again = interrupted(process, signal.SIGINT)
    (sweep,) = here.runs("verdicts")
    assert sweep.data.tags["status"] == "killed"
    assert again == ["sweep", CURVES, "--resume", sweep.data.tags["sweep"], "--address", address]
    more = [*again, "--metric", "loss/val", "--mode", "max"]
    process = here.start(*more)
    here.wait_for_point(CURVES, "loss/val", runs=2)
    assert interrupted(process, signal.SIGHUP) == more
    resumed = here(*more, "--json").document
    assert [trial["status"] for trial in resumed["trials"]] == ["finished", "finished"]
    assert {len(here.history(trial["run_id"], "loss/val")) for trial in resumed["trials"]} == {60}
    assert resumed["best"]["ranked"]["mode"] == "max"
    assert len(here.runs("verdicts")) == 1


@pytest.mark.heavy
def test_an_interrupted_reproduction_prints_itself_but_does_not_begin_anew(lab: CommandLine) -> None:
    here = lab.desk("reproduction")
    process = here.start("reproduce", "patient/curves", "--fresh")
    here.wait_for_point("patient/curves", "loss/val")
    again = interrupted(process, signal.SIGTERM)
    assert again == ["reproduce", "patient/curves"]
    said = here(*again, "--json")
    assert "resuming an interrupted reproduction" in said.err
    assert len(here.runs("verdicts")) == 1


@pytest.mark.heavy
def test_a_reproduction_that_is_interrupted_while_it_judges_is_closed_and_judges_when_it_continues(
    lab: CommandLine,
) -> None:
    here = lab.desk("judging")
    (here.home / "pondering").touch()
    process = here.start("reproduce", "stranger/surprise")
    until(lambda: [run for run in here.runs("verdicts") if run.data.tags["status"] == "judging"])
    again = interrupted(process, signal.SIGTERM)
    (sweep,) = here.runs("verdicts")
    assert (sweep.info.status, sweep.data.tags["status"]) == ("KILLED", "killed")
    (here.home / "pondering").unlink()
    (judged,) = here(*again, "--json", code=1).document["experiments"]
    assert [claim["status"] for claim in judged["claims"]] == ["fails"]
    assert len(here.runs("stranger/surprise")) == 3, "nothing is trained again"
    (sweep,) = here.runs("verdicts")
    assert (sweep.info.status, sweep.data.tags["status"]) == ("FINISHED", "finished")


def test_an_interrupted_run_names_its_run(lab: CommandLine) -> None:
    here = lab.desk("single")
    process = here.start("run", CURVES, "steps=2000", "pause=0.05")
    (run,) = here.wait_for_point(CURVES, "loss/val")
    process.send_signal(signal.SIGINT)
    said = ended(process)
    kept = f"what was recorded is kept in run {run.info.run_id}, which featurelab rerun {run.info.run_id} repeats"
    assert (said.code, said.err) == (130, f"featurelab: interrupted; {kept}\n")


@pytest.mark.heavy
def test_on_a_terminal_a_run_shows_step_loss_elapsed_time_and_time_left(
    lab: CommandLine, patient: dict[str, str], tmp_path: Path
) -> None:
    ours, theirs = pty.openpty()
    environment = patient | {"TERM": "xterm", "COLUMNS": "120"}
    here = lab.desk("terminal")
    process = subprocess.Popen(
        [FEATURELAB, "run", "patient/training"], cwd=here.home, env=environment, stderr=theirs, stdout=subprocess.PIPE
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            shown += os.read(ours, 65536)
        except OSError:
            break
    assert process.wait(60) == 0
    frames = re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode()))
    bars = [" ".join(re.sub("[━╸╺]", "", frame).split()) for frame in frames if "elapsed" in frame]
    whole = re.compile(r"training step \d+/450 loss/train [\d.e-]+ \d+:\d\d elapsed( \d+:\d\d left)?")
    before = re.compile(r"training (starting|step 0/450)( loss/\w+ [\d.e-]+)? \d+:\d\d elapsed")
    assert [bar for bar in bars if not (whole.fullmatch(bar) or before.fullmatch(bar))] == []
    assert any("left" in bar for bar in bars)
