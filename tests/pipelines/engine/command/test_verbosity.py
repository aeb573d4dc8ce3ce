"""-q leaves only errors and the result, -v adds tracebacks, and doctor knows every environment variable."""

import json
import re
from pathlib import Path

import pytest
from hostile import Commands, check_line

from featurelab.pipelines.engine.command.settings import SETTINGS

ROOT = Path(__file__).parents[4]
NAME = "neural_feature_ansatz/init_scale"
SMALL = ["n_train=8", "n_test=4", "dim=4", "width=4", "rank=3", "steps=2"]


@pytest.fixture
def commands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("MLFLOW_TRACKING_URI", *(setting.name for setting in SETTINGS)):
        monkeypatch.delenv(name, raising=False)
    return Commands(tmp_path)


def test_a_quiet_run_prints_its_id_and_nothing_else(commands):
    answer = commands("run", NAME, *SMALL, "-q")
    assert (answer.code, answer.out) == (0, "")
    assert re.fullmatch(r"finished, run [0-9a-f]{32}\n", answer.err)


@pytest.mark.parametrize("arguments", [("-q", "list", "--json"), ("list", "--quiet", "--json"), ("data", "list", "-q")])
def test_what_a_quiet_command_is_asked_for_it_prints(commands, arguments):
    answer = commands(*arguments)
    assert answer.code == 0
    assert "neural_feature_ansatz" in answer.out if "list" in arguments[:2] and arguments[0] != "data" else answer.out


@pytest.mark.parametrize("option", ["-q", "-v"])
def test_an_error_is_shown_and_with_v_its_traceback(commands, option):
    answer = commands("show", "neural_feature_ansatz/init_scal", option)
    assert answer.code == 2
    check_line(answer.err.splitlines()[-1] + "\n")
    assert ("Traceback" in answer.err) == (option == "-v")


def test_quiet_and_verbose_at_once_are_refused(commands):
    answer = commands("list", "-v", "-q")
    assert answer.code == 2
    check_line(answer.err)


def test_doctor_lists_every_environment_variable_with_value_default_and_meaning(commands, monkeypatch):
    monkeypatch.setenv("FEATURELAB_DATA", "/somewhere")
    shown = {check["name"]: check["detail"] for check in json.loads(commands("doctor", "--json").out)}
    for setting in SETTINGS:
        assert setting.default in shown[setting.name]
        assert setting.meaning in shown[setting.name]
    assert shown["FEATURELAB_DATA"].startswith("/somewhere ")


def test_every_environment_variable_in_the_code_is_listed():
    files = [path for folder in ("modules", "pipelines", "tracking") for path in (ROOT / folder).rglob("*.py")]
    files += [*ROOT.glob("featurelab/*.py"), *ROOT.glob("docs/*.md"), *ROOT.glob("*.yaml")]
    found = {name for path in files for name in re.findall(r"FEATURELAB_[A-Z_]+", path.read_text())}
    assert found == {setting.name for setting in SETTINGS}
