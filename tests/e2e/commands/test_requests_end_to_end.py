"""What a sweep is asked for: fixed settings, a metric to rank by; and what a person sees of a run while it goes on."""

import os
import pty
import re
import select
import subprocess
import sys

from commandline import TINY, CommandLine

CURVES = "stranger/curves"
SCALE = "neural_feature_ansatz/init_scale"


def test_a_sweep_fixes_settings_that_are_given_as_key_and_value(lab: CommandLine) -> None:
    here = lab.desk("fixed")
    said = here("sweep", CURVES, "steps=5", "level=2", "--over", "seed=0,1", "--json").document
    assert [(t["config"]["steps"], t["config"]["level"], t["config"]["seed"]) for t in said["trials"]] == [
        (5, 2.0, 0),
        (5, 2.0, 1),
    ]
    for run in here.runs(CURVES):
        assert run.data.params == {"seed": run.data.params["seed"], "steps": "5", "level": "2.0"}
    declared = here("sweep", CURVES, "steps=2", "level=3", "--samples", "3", "--json").document
    assert {trial["config"]["level"] for trial in declared["trials"]} == {3.0}
    assert len({trial["config"]["lr"] for trial in declared["trials"]}) == 3, "the other declared axis is searched"


def test_a_sweep_refuses_settings_that_contradict_each_other(lab: CommandLine) -> None:
    here = lab.elsewhere(lab.home / "contradiction")
    for arguments, names in {
        ("steps=5", "--over", "steps=1,2"): "steps is given both as steps=... and with --over",
        ("lr=loguniform(1e-3,1)",): "To sweep over it, write --over 'lr=loguniform(1e-3,1)'",
        ("stpes=5",): "unknown setting 'stpes': did you mean steps?",
        ("--resume", "x", "steps=5"): "--resume x runs what was planned: leave out KEY=VALUE",
        ("--resume", "x", "--over", "seed=0", "--samples", "2"): "leave out --over, --samples",
    }.items():
        said = here("sweep", CURVES, *arguments, code=2)
        assert names in said.err
    assert list(here.home.iterdir()) == []


def test_a_metric_that_no_trial_records_ends_the_sweep_with_its_first_trial(lab: CommandLine) -> None:
    here = lab.desk("metric")
    axes = ["--over", "seed=0,1,2,3,4,5,6,7", "steps=10", "pause=0.2"]
    said = here("sweep", CURVES, *axes, "--metric", "loss/vla", "--name", "night", code=1)
    for named in ("loss/vla", "did you mean loss/val?", "--resume night"):
        assert named in said.err
    assert said.err.count("\n") == 1
    (sweep,) = here.runs("verdicts")
    assert (sweep.info.status, sweep.data.tags["status"]) == ("KILLED", "killed")
    runs = here.runs(CURVES)
    assert 1 <= len(runs) < 8
    finished = [run.info.run_id for run in runs if run.data.tags["status"] == "finished"]
    assert finished
    assert all(len(here.history(run_id, "loss/val")) == 10 for run_id in finished)
    rest = here("sweep", CURVES, "--resume", "night", "--metric", "loss/val", "--mode", "min", "--json").document
    assert [trial["status"] for trial in rest["trials"]] == ["finished"] * 8
    assert set(finished) <= {trial["run_id"] for trial in rest["trials"]}
    assert rest["best"] is not None


def test_asha_notices_it_too(lab: CommandLine) -> None:
    here = lab.desk("asha")
    options = ["--scheduler", "asha", "--metric", "nfa/0", "--over", "seed=0,1,2,3"]
    said = here("sweep", CURVES, *options, code=1)
    assert "trials do not record nfa/0: there is loss/val, seed_seen" in said.err


def on_a_terminal(here: CommandLine, *arguments: str) -> tuple[str, int]:
    """What a command shows on a terminal of 80 columns, and its exit status."""
    ours, theirs = pty.openpty()
    wide = here.elsewhere(here.home, TERM="xterm", COLUMNS="80")
    process = wide.start(*arguments, terminal=os.ttyname(theirs))
    shown = b""
    while True:
        over = process.poll() is not None
        if select.select([ours], [], [], 0.1)[0]:
            shown += os.read(ours, 65536)
        elif over:
            break
    os.close(theirs)
    os.close(ours)
    return shown.decode(), process.wait()


def test_a_run_shows_step_loss_and_time_left_on_a_terminal(lab: CommandLine) -> None:
    here = lab.desk("bar")
    long = [*TINY[:3], "rank=3", "steps=3000", "measure_every=50"]
    shown, code = on_a_terminal(here, "run", SCALE, *long)
    assert code == 0
    plain = re.sub(r"\x1b\[[\d;?]*\w", "", shown)
    bars = re.findall(r"step (\d+)/3000 loss/test \S+ \d+:\d\d elapsed \d+:\d\d left", plain)
    assert len(bars) >= 2
    steps = [int(step) for step in bars]
    assert steps == sorted(steps)
    assert steps[-1] <= 3000
    shown, code = on_a_terminal(here, "run", CURVES, "steps=30", "pause=0.05")
    assert code == 0
    assert re.search(r"step \d+ loss/val 0\.\d+ .*elapsed", shown), (
        "a trial that does not train has no measure of what is left"
    )


def test_ids_are_whole_at_80_columns(lab: CommandLine) -> None:
    here = lab.desk("narrow")
    shown, code = on_a_terminal(here, "sweep", CURVES, "steps=2", "--over", "seed=0,1", "--name", "narrow")
    assert code == 0
    runs = [run.info.run_id for run in here.runs(CURVES)]
    assert len(runs) == 2
    assert all(run_id in shown for run_id in runs)
    reproduced, _ = on_a_terminal(here, "reproduce", CURVES)
    for whole in ("levels_are_apart", "never_true", here.runs("verdicts")[-1].info.run_id):
        assert whole in reproduced


def test_the_command_alone_prints_its_help_and_knows_its_version(lab: CommandLine) -> None:
    for arguments in ((), ("data",)):
        said = lab(*arguments)
        assert said.out.startswith("Usage: featurelab")
        assert said.out == lab(*arguments, "--help").out
    assert re.fullmatch(r"featurelab \d+\.\d+\.\d+\n", lab("--version").out)


def test_a_shell_completes_commands_experiments_and_settings(lab: CommandLine) -> None:
    def completed(line: str) -> set[str]:
        words = {
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(line.split(" ")) - 1),
            "_FEATURELAB_COMPLETE": "complete_bash",
        }
        return set(lab.elsewhere(lab.home, **words)().out.split())

    assert {"reproduce", "report", "rerun"} <= completed("featurelab re")
    assert completed("featurelab run stranger/cu") == {CURVES}
    assert {"stranger", CURVES} <= completed("featurelab reproduce str")
    assert completed(f"featurelab run {CURVES} le") == {"level="}
    assert {"laptop", "paper"} <= completed(f"featurelab run {CURVES} --scale ")


def test_comparing_and_refusing_load_neither_torch_nor_ray_nor_matplotlib(lab: CommandLine) -> None:
    here = lab.desk("light")
    runs = [here("run", CURVES, f"seed={seed}", "--json").document["run_id"] for seed in (0, 1)]
    asked = [["compare", *runs], ["judge", "ffffff"], ["compare", "ffffff", runs[0]], ["rerun", "ffffff"]]
    code = f"""if True:
        import sys
        from featurelab.pipelines.engine.command import cli
        for arguments in {asked}:
            sys.argv = ["featurelab", *arguments]
            try:
                cli.main()
            except SystemExit as end:
                print(end.code, [m for m in ("torch", "ray", "matplotlib", "pytorch_lightning") if m in sys.modules])
        """
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=here.home, env=here.environment, capture_output=True, text=True, timeout=120)
    answers = [line for line in done.stdout.splitlines() if line.endswith("]")]
    assert answers[-4:] == ["0 []", "2 []", "2 []", "2 []"], done.stderr
