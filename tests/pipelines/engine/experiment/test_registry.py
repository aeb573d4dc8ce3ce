"""Finding experiments by name: ours, and those of other people's packages."""

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from featurelab.pipelines import neural_feature_ansatz
from featurelab.pipelines.engine.errors import RequestError
from featurelab.pipelines.engine.experiment import registry

FEATURELAB = Path(sys.executable).parent / "featurelab"
MINE = """
from featurelab.pipelines.engine.experiment.config import Config
from featurelab.pipelines.engine.experiment.experiment import Experiment

first = Experiment(
    name="mine/first", figure="Fig. 1", title="mine", laptop=Config(), paper=Config(), grid={"seed": [0, 1]}, minutes=1
)
"""


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Put a package with one module and one entry point on the path; its modules are forgotten afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)

    def add(module, entry, source):
        (tmp_path / f"{module}.py").write_text(textwrap.dedent(source))
        info = tmp_path / f"{module}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[{registry.GROUP}]\n{entry} = {module}\n")
        return tmp_path

    yield add
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def refused(function, *arguments):
    with pytest.raises(RequestError) as error:
        function(*arguments)
    assert len(str(error.value).splitlines()) == 1
    return str(error.value)


def test_every_experiment_is_found_by_its_name():
    found = registry.experiments()
    assert len({e.name for e in found}) == len(found) >= 15
    for experiment in found:
        assert registry.find(experiment.name) is experiment


def test_every_file_of_a_system_that_declares_experiments_is_in_the_registry():
    folder = Path(neural_feature_ansatz.__file__).parent
    declared = sum(len(re.findall(r"= (Experiment|\w+\.variant)\(", path.read_text())) for path in folder.glob("*.py"))
    assert declared == len(registry.experiments("neural_feature_ansatz"))


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("neural_feature_ansatz/init_scal", "did you mean neural_feature_ansatz/init_scale?"),
        ("neural_feature_ansats/init_scale", "did you mean neural_feature_ansatz/init_scale?"),
        ("init_scale", "did you mean neural_feature_ansatz/init_scale?"),
        ("", "there is "),
        ("x" * 300, "there is "),
        ("a\nb/c", "'a\\nb/c'"),
    ],
)
def test_an_unknown_experiment_is_refused_with_the_nearest(name, nearest):
    said = refused(registry.find, name)
    assert said.startswith("unknown experiment")
    assert nearest in said


def test_an_unknown_system_is_refused_with_the_nearest():
    said = refused(registry.experiments, "neural_features_ansatz")
    assert said == "unknown system 'neural_features_ansatz': did you mean neural_feature_ansatz?"


def test_systems_and_experiments_are_selected_by_name_each_once():
    name = "neural_feature_ansatz/init_scale"
    assert [e.name for e in registry.select([name, name])] == [name]
    everything = registry.select([])
    assert registry.select([name, "neural_feature_ansatz"])[0].name == name
    assert set(registry.select(["neural_feature_ansatz", name])) <= set(everything)
    headlines = registry.select([], headline=True)
    assert headlines == [e for e in everything if e.headline]
    assert headlines
    assert refused(registry.select, ["neural_feature_ansatz/identities"], True).endswith("is a headline")


def test_a_stranger_s_module_adds_a_system(install):
    install("strangers_module", "mine", MINE)
    assert registry.systems()[-1] == "mine"
    first = registry.find("mine/first")
    assert first in registry.experiments()
    assert registry.experiments("mine") == [first]
    assert len(first.configs("laptop")) == 2
    assert refused(registry.find, "mine/frist").endswith("did you mean mine/first?")


def test_a_stranger_s_single_experiment_can_be_the_entry_point(install):
    folder = install("strangers_object", "mine/first", MINE)
    info = folder / "strangers_object-1.0.dist-info" / "entry_points.txt"
    info.write_text(f"[{registry.GROUP}]\nmine/first = strangers_object:first\n")
    assert registry.find("mine/first").title == "mine"


def test_a_stranger_can_add_to_a_system_of_ours_and_reuse_its_experiments(install):
    ours = registry.experiments("neural_feature_ansatz")
    install(
        "strangers_extra",
        "neural_feature_ansatz",
        "from featurelab.pipelines.neural_feature_ansatz.init_scale import isotropic\n"
        + MINE.replace("mine/first", "neural_feature_ansatz/first"),
    )
    names = {e.name for e in registry.experiments("neural_feature_ansatz")}
    assert names == {e.name for e in ours} | {"neural_feature_ansatz/first"}


def test_the_command_finds_a_stranger_s_experiment(install):
    folder = install("strangers_command", "mine", MINE)
    done = subprocess.run(
        [FEATURELAB, "show", "mine/first", "--json"],
        env={"PYTHONPATH": str(folder), "PATH": ""},
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert '"name": "mine/first"' in done.stdout


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("import no_such_module_of_mine", "ModuleNotFoundError: No module named 'no_such_module_of_mine'"),
        ("def broken(:", "SyntaxError"),
        ("raise KeyError('x')", "KeyError: 'x'"),
        ("raise RuntimeError('first\\nsecond')", "RuntimeError: first"),
        (MINE.replace("[0, 1]", "[0, -1]"), "seed = -1"),
        (MINE.replace("mine/first", "Mine"), "<system>/<experiment>"),
    ],
)
def test_a_package_that_does_not_load_gives_one_line_that_names_it(install, source, says):
    install("strangers_broken", "mine", source)
    for said in (refused(registry.experiments), refused(registry.find, "mine/first")):
        assert said.startswith("the experiment package strangers_broken does not load: ")
        assert says in said


def test_a_broken_package_leaves_our_experiments_usable(install):
    install("strangers_broken_too", "mine", "import no_such_module_of_mine")
    assert registry.find("neural_feature_ansatz/init_scale").headline
    assert "mine" in registry.systems()


def test_an_entry_point_that_is_no_experiment_is_refused(install):
    folder = install("strangers_number", "mine", "number = 3")
    assert "declares no experiment of mine" in refused(registry.experiments, "mine")
    info = folder / "strangers_number-1.0.dist-info" / "entry_points.txt"
    info.write_text(f"[{registry.GROUP}]\nmine = strangers_number:number\n")
    assert "neither an Experiment nor a module" in refused(registry.experiments, "mine")


def test_an_entry_point_that_names_another_system_is_refused(install):
    install("strangers_misnamed", "yours", MINE)
    assert refused(registry.experiments, "yours").startswith("strangers_misnamed declares no experiment of yours")


def test_two_experiments_of_one_name_are_refused(install):
    install("strangers_twin", "neural_feature_ansatz", MINE.replace("mine/first", "neural_feature_ansatz/init_scale"))
    said = refused(registry.experiments)
    assert said == "two experiments are called neural_feature_ansatz/init_scale"
    assert refused(registry.find, "neural_feature_ansatz/init_scale") == said
