"""What cannot be done is said in one line, at once, with status 2, and leaves no trace."""

import os
from pathlib import Path

import pytest
from commandline import TINY, CommandLine, Said, ended
from warm import Warm

from featurelab.pipelines.engine.experiment.catalogue import registry
from featurelab.tracking.store.connect import connect

SCALE = "neural_feature_ansatz/init_scale"
SYSTEMS = [f"featurelab.pipelines.{name}" for name in registry.systems()]


def over(domain: str) -> list[str]:
    return ["sweep", SCALE, "--over", domain]


# what is asked, and what the answer must name
WRONG: dict[str, tuple[list[str], list[str]]] = {
    "command": (["runn"], ["runn"]),
    "option": (["run", SCALE, "--sacle", "paper"], ["--sacle", "--scale"]),
    "missing argument": (["run"], ["EXPERIMENT"]),
    "experiment": (["run", "neural_feature_ansatz/init_scal"], ["did you mean neural_feature_ansatz/init_scale?"]),
    "no experiment": (["show", ""], ["unknown experiment ''"]),
    "system of an experiment": (["show", "neural_feature_ansats/init_scale"], ["did you mean"]),
    "system": (["list", "neural_feature_ansats"], ["did you mean neural_feature_ansatz?"]),
    "reproduced system": (["reproduce", "neural_feature"], ["neural_feature"]),
    "scale": (["run", SCALE, "--scale", "desktop"], ["desktop", "laptop", "paper"]),
    "setting": (["run", SCALE, "widht=3"], ["'widht'", "did you mean width?"]),
    "swept setting": (over("widht=3,4"), ["did you mean width?"]),
    "negative width": (["run", SCALE, "width=-1"], ["width", "'-1'", "greater than or equal to 1"]),
    "zero lr": (["run", SCALE, "lr=0"], ["lr", "greater than 0"]),
    "nan": (["run", SCALE, "lr=nan"], ["lr", "finite"]),
    "infinity": (["run", SCALE, "lr=inf"], ["lr", "finite"]),
    "infinity by overflow": (["run", SCALE, "lr=1e400"], ["lr", "finite"]),
    "huge seed": (["run", SCALE, "seed=1e400"], ["seed"]),
    "seed beyond 63 bits": (["run", SCALE, f"seed={2**63}"], ["seed"]),
    "negative seed": (["run", SCALE, "seed=-1"], ["seed", "greater than or equal to 0"]),
    "text for a number": (["run", SCALE, "width=wide"], ["width", "'wide'"]),
    "fraction for a whole number": (["run", SCALE, "width=1.5"], ["width", "'1.5'"]),
    "list for a number": (["run", SCALE, "width=[1,2]"], ["width"]),
    "broken list": (["run", SCALE, "speeds=[1,"], ["[1,", "not a list"]),
    "none for a number": (["run", SCALE, "lr=none"], ["lr"]),
    "unknown choice": (["run", SCALE, "optimizer=adam"], ["optimizer", "gd"]),
    "no equals sign": (["run", SCALE, "width"], ["'width'", "key=value"]),
    "setting twice": (["run", SCALE, "width=1", "width=2"], ["width", "twice"]),
    "empty key": (["run", SCALE, "=3"], ["''"]),
    "value with line breaks": (["run", SCALE, "width=\n\n7\nx"], ["width"]),
    "empty grid": (over("lr="), ["empty value"]),
    "gap in a grid": (over("lr=0.1,,0.2"), ["empty value"]),
    "grid without key": (over("0.1,0.2"), ["key=DOMAIN"]),
    "bad value in a grid": (over("lr=0.1,-0.2"), ["lr", "greater than 0"]),
    "nan in a grid": (over("lr=0.1,nan"), ["lr", "finite"]),
    "unknown domain": (over("lr=normal(0,1)"), ["normal", "loguniform"]),
    "open domain": (over("lr=uniform(0.1,0.2"), ["not a domain"]),
    "loguniform from zero": (over("lr=loguniform(0,1)"), ["above 0"]),
    "uniform upside down": (over("lr=uniform(2,1)"), ["lower one first"]),
    "uniform with one end": (over("lr=uniform(2)"), ["two"]),
    "infinite uniform": (over("lr=uniform(0,inf)"), ["finite"]),
    "fractional randint": (over("width=randint(1.5,3)"), ["whole numbers"]),
    "empty choice": (over("lr=choice()"), ["empty value"]),
    "domain beyond the limits": (over("lr=uniform(-1,1)"), ["lr", "greater than 0"]),
    "axis twice": ([*over("lr=1,2"), "--over", "lr=3"], ["lr", "twice"]),
    "no samples": ([*over("lr=1,2"), "--samples", "0"], ["--samples 0"]),
    "text for samples": ([*over("lr=1,2"), "--samples", "many"], ["--samples"]),
    "mode": ([*over("lr=1,2"), "--mode", "maximum"], ["maximum", "did you mean max?"]),
    "scheduler": ([*over("lr=1,2"), "--scheduler", "pbt"], ["pbt", "asha"]),
    "no cpus": ([*over("lr=1,2"), "--cpus-per-trial", "0"], ["--cpus-per-trial"]),
    "nan cpus": ([*over("lr=1,2"), "--cpus-per-trial", "nan"], ["--cpus-per-trial"]),
    "negative gpus": ([*over("lr=1,2"), "--gpus-per-trial", "-1"], ["--gpus-per-trial"]),
    "no workers": ([*over("lr=1,2"), "--workers-per-trial", "0"], ["--workers-per-trial"]),
    "no time": ([*over("lr=1,2"), "--trial-timeout", "0"], ["--trial-timeout"]),
    "sweep name that climbs": ([*over("lr=1,2"), "--name", "../x"], ["--name '../x'"]),
    "sweep name too long": ([*over("lr=1,2"), "--name", "x" * 101], ["--name"]),
    "sweep to resume": (["sweep", SCALE, "--resume", "nothing"], ["no store"]),
    "run id to judge": (["judge", "0123456789abcdef"], ["there is no store"]),
    "run id to rerun": (["rerun", "0123456789abcdef0123456789abcdef"], ["there is no store"]),
    "runs to compare": (["compare", "one", "two"], ["there is no store"]),
    "report over a file": (["report", "--out", "a-file"], ["a-file"]),
    "nothing to report": (["report"], ["there is no store"]),
}
WRONG_PLACE: dict[str, tuple[dict[str, str], list[str], list[str]]] = {
    "no server": ({"MLFLOW_TRACKING_URI": "http://127.0.0.1:1"}, ["run", SCALE], ["127.0.0.1:1"]),
    "store in /proc": ({"MLFLOW_TRACKING_URI": "sqlite:////proc/x.db"}, ["run", SCALE], ["/proc/x.db"]),
    "a folder as store": ({"MLFLOW_TRACKING_URI": "sqlite:////tmp"}, ["run", SCALE], ["/tmp"]),
    "old file store": ({"MLFLOW_TRACKING_URI": "file:///tmp/mlruns"}, ["run", SCALE], ["sqlite"]),
    "no cluster": ({}, [*over("lr=1,2"), "--address", "127.0.0.1:1"], ["127.0.0.1:1"]),
    "no address": ({}, [*over("lr=1,2"), "--address", "nonsense"], ["nonsense", "HOST:PORT"]),
    "no client cluster": ({}, [*over("lr=1,2"), "--address", "ray://127.0.0.1:1"], ["ray://127.0.0.1:1"]),
}


@pytest.fixture(scope="module")
def torchless(tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str]) -> CommandLine:
    """The command, where importing torch is fatal."""
    folder = tmp_path_factory.mktemp("torchless")
    (folder / "torch.py").write_text("raise RuntimeError('a wrong request must not wait for torch')\n")
    without = environment | {"PYTHONPATH": os.pathsep.join([str(folder), environment["PYTHONPATH"]])}
    return CommandLine(folder, without, warm=Warm(without, ["featurelab.tracking.store.connect", *SYSTEMS]))


def answer(here: CommandLine, arguments: list[str]) -> Said:
    (here.home / "a-file").write_text("kept")
    said = here(*arguments, code=2, timeout=60)
    assert [entry.name for entry in here.home.iterdir()] == ["a-file"], "something was written"
    return said


def check_answer(said: Said, named: list[str]) -> None:
    assert said.out == ""
    assert said.err.startswith("featurelab: "), said.err
    assert said.err.count("\n") == 1, said.err
    assert len(said.err) < 500
    for part in named:
        assert part in said.err


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_request_is_refused_in_one_line(name: str, torchless: CommandLine, tmp_path: Path) -> None:
    arguments, named = WRONG[name]
    check_answer(answer(torchless.elsewhere(tmp_path), arguments), named)


def test_a_command_whose_imports_were_not_made_beforehand_refuses_as_well(torchless: CommandLine) -> None:
    arguments, named = WRONG["zero lr"]
    check_answer(ended(torchless.start_cold(*arguments)), named)


@pytest.mark.parametrize("name", WRONG_PLACE)
def test_an_unreachable_place_is_named(name: str, torchless: CommandLine, tmp_path: Path) -> None:
    changes, arguments, named = WRONG_PLACE[name]
    said = answer(torchless.elsewhere(tmp_path, **changes), arguments)
    check_answer(said, named)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["judge", "0123456789abcdef"], ["0123456789abcdef"]),
        (["rerun", "0123456789abcdef0123456789abcdef"], ["0123456789abcdef"]),
        (["rerun", "../x"], ["../x"]),
        (["rerun", ""], ["''"]),
        (["judge", "a" * 300], ["a" * 30]),
        (["rerun", "a'b\"c"], ['b"c']),
        (["compare", "one", "two"], ["one"]),
        (["report"], ["featurelab reproduce"]),
        (["sweep", SCALE, "--resume", "nothing"], ["unknown sweep 'nothing'"]),
    ],
)
def test_what_is_not_in_the_store_is_named(
    store_without_runs: CommandLine, arguments: list[str], named: list[str]
) -> None:
    before = sorted(store_without_runs.home.rglob("*"))
    check_answer(store_without_runs(*arguments, code=2), named)
    assert sorted(store_without_runs.home.rglob("*")) == before


@pytest.fixture(scope="module")
def store_without_runs(
    tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str], template: Path
) -> CommandLine:
    here = CommandLine(tmp_path_factory.mktemp("empty"), environment, template).desk("empty")
    connect(f"sqlite:///{here.home / 'mlflow.db'}", timeout=60)  # SQLite's files beside it stay
    return here


def test_missing_data_are_named_with_how_to_fetch_them(featurelab: CommandLine) -> None:
    check_answer(featurelab("data", "check", "svnh", code=2), ["did you mean svhn?"])
    for command in (["run"], ["reproduce"]):
        arguments = [*command, "neural_feature_ansatz/face_features", "--scale", "paper"]
        check_answer(featurelab(*arguments, code=2), ["featurelab data fetch"])
    assert list(featurelab.home.iterdir()) == []


def test_more_cpus_than_the_machine_has_are_refused(lab: CommandLine) -> None:
    here = lab.desk("cpus")
    said = here("sweep", "stranger/curves", "--cpus-per-trial", "4096", code=2)
    check_answer(said, ["--cpus-per-trial 4096", "the cluster has 1 CPU"])
    assert here.runs("verdicts") == here.runs("stranger/curves") == []


def test_a_run_of_plain_mlflow_is_not_ours_to_repeat(featurelab: CommandLine) -> None:
    here = featurelab.desk("plain")
    run = here.client.create_run("0")
    here.client.log_metric(run.info.run_id, "x", 1)
    for command in (["rerun"], ["judge"], ["compare", run.info.run_id]):
        said = here(*command, run.info.run_id, code=2)
        check_answer(said, [run.info.run_id] if len(command) == 1 else ["two different runs"])
    assert len(here.client.search_runs(["0"])) == 1


def test_a_dry_run_says_what_it_needs_and_writes_nothing(featurelab: CommandLine) -> None:
    said = featurelab("run", "neural_feature_ansatz/street_numbers", "--scale", "paper", "--dry-run", "--json")
    needs = said.document
    assert needs["parameters"] > 1e4
    assert needs["memory_bytes"] > 8 * needs["parameters"]
    assert needs["grid_gpu_hours"] >= needs["trial_gpu_hours"] > 0
    assert any("fetch" in hint for hint in needs["data"].values())
    plain = featurelab("run", SCALE, *TINY, "--dry-run")
    assert "parameters" in plain.out
    assert str(8 * 16 + 16 * 16 + 16) in plain.out
    assert list(featurelab.home.iterdir()) == []


def test_help_and_version_of_the_tools_cost_no_store(featurelab: CommandLine) -> None:
    for arguments in (["--help"], ["run", "--help"], ["sweep", "--help"], ["data", "list"]):
        said = featurelab(*arguments)
        assert said.out
        assert said.err == ""
    assert list(featurelab.home.iterdir()) == []
