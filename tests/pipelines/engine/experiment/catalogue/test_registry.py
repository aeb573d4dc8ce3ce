"""Finding experiments by name: ours, and those of other people's packages."""

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from featurelab.pipelines import neural_feature_ansatz
from featurelab.pipelines.engine.errors import RequestError
from featurelab.pipelines.engine.experiment.catalogue import installing, papers, registry

FEATURELAB = Path(sys.executable).parent / "featurelab"
MINE = """
from featurelab.pipelines.engine.experiment.config import Config
from featurelab.pipelines.engine.experiment.experiment import Experiment

first = Experiment(
    name="mine/first", figures=("Fig. 1",), title="mine", laptop=Config(), paper=Config(), grid={"seed": [0, 1]},
    minutes=1,
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
        (info / "entry_points.txt").write_text(f"[{installing.GROUP}]\n{entry} = {module}\n")
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
    declared = sum(len(re.findall(r"= (Experiment|\w+\.variant)\(", path.read_text())) for path in folder.rglob("*.py"))
    assert declared == len(registry.experiments("neural_feature_ansatz"))


def test_a_figure_in_a_room_of_a_system_belongs_to_the_paper_and_the_record_of_the_system():
    inside = registry.find("icl_scale/parity_noise")
    assert ".icl_scale.parity." in inside.run_trial.__module__
    assert papers.paper(inside) == papers.paper(registry.find("icl_scale/sentiment")) != ""
    assert inside.claims[0].folder.name == "icl_scale"


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
    info.write_text(f"[{installing.GROUP}]\nmine/first = strangers_object:first\n")
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
    done = command(folder, "show", "mine/first", "--json")
    assert done.returncode == 0, done.stderr
    assert '"name": "mine/first"' in done.stdout


LEAVES = [
    ("import no_such_module_of_mine", "does not load: ModuleNotFoundError: No module named 'no_such_module_of_mine'"),
    ("def broken(:", "does not load: SyntaxError: "),
    ("raise KeyError('x')", "does not load: KeyError: 'x'"),
    ("raise RuntimeError('first\\nsecond')", "does not load: RuntimeError: first"),
    ("raise ValueError('\\n')", "does not load: ValueError"),
    ("raise KeyboardInterrupt", "does not load: KeyboardInterrupt"),
    ("class Strange(BaseException): pass\nraise Strange('x\\x1b[2J')", r"does not load: Strange: x\x1b[2J"),
    (MINE.replace("[0, 1]", "[0, -1]"), "seed = -1"),
    (MINE.replace("mine/first", "Mine"), "<system>/<experiment>"),
    ("number = 3", "declares no experiment of mine, which its entry point names"),
    ("import sys; sys.exit()", "exits at import (status 0)"),
    ("import sys; sys.exit(3)", "exits at import (status 3)"),
    ("import os; os._exit(0)", "exits at import (status 0)"),
    ("while True: pass", "took longer than 0.5 s to import; FEATURELAB_IMPORT_SECONDS allows more"),
    ("import time\ntry: time.sleep(60)\nexcept Exception: pass", "took longer than 0.5 s to import"),
]


@pytest.mark.parametrize(("source", "says"), LEAVES)
def test_a_package_that_exits_hangs_or_raises_at_import_is_left_out_with_one_line(
    install, monkeypatch, capsys, source, says
):
    monkeypatch.setenv("FEATURELAB_IMPORT_SECONDS", "0.5")
    ours = registry.experiments()
    name = f"strangers_broken_{[given for given, _ in LEAVES].index(source)}"
    install(name, "mine", source)
    assert registry.experiments() == registry.experiments() == registry.select([]) == ours
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith(f"featurelab: the package {name} is left out: {name} ")
    assert says in said
    assert registry.find("neural_feature_ansatz/init_scale").headline
    assert "mine" in registry.systems()
    assert registry.names() == [experiment.name for experiment in ours]
    assert says.partition(": ")[0] in refused(registry.find, "mine/first")
    assert says.partition(": ")[0] in refused(registry.experiments, "mine")
    assert capsys.readouterr().err == ""


def import_path(folder):
    """PYTHONPATH of a folder and of the tree that this file is in: another one may be installed."""
    return os.pathsep.join([str(Path(__file__).parents[5]), str(folder)])


def command(folder, *arguments, **variables):
    return subprocess.run(
        [FEATURELAB, *arguments],
        env={"PYTHONPATH": import_path(folder), "PATH": "", **variables},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("source", ["import sys; sys.exit(0)", "import os; os._exit(0)", "while True: pass"])
def test_the_command_lists_all_other_experiments_beside_a_broken_package(install, source):
    ours = [experiment.name for experiment in registry.experiments()]
    folder = install("strangers_exit", "mine", source)
    done = command(folder, "list", "--json", FEATURELAB_IMPORT_SECONDS="1")
    assert (done.returncode, len(done.stderr.splitlines())) == (0, 1), done.stderr
    assert done.stderr.startswith("featurelab: the package strangers_exit is left out: ")
    assert [one["name"] for one in json.loads(done.stdout)] == ours


def test_an_unknown_name_is_one_line_and_status_2_beside_a_broken_package(install):
    done = command(install("strangers_exits", "mine", "import sys; sys.exit(0)"), "reproduce", "nope")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1), done.stderr
    assert done.stderr.startswith("featurelab: unknown experiment 'nope': ")


def test_ctrl_c_during_a_slow_import_ends_the_command(install):
    ticks = "import pathlib, time\npathlib.Path('importing').touch()\nfor _ in range(600): time.sleep(0.1)"
    folder = install("strangers_slow", "mine", ticks)
    process = subprocess.Popen(
        [FEATURELAB, "list"],
        env={"PYTHONPATH": import_path(folder), "PATH": ""},
        cwd=folder,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not (folder / "importing").exists():
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=15)[1]
    assert (process.returncode, said) == (130, "featurelab: interrupted\n")


def test_what_a_package_prints_at_import_stays_out_of_the_document(install):
    folder = install("strangers_noise", "mine", "print('hello')\n" + MINE)
    done = command(folder, "list", "mine", "--json")
    assert [one["name"] for one in json.loads(done.stdout)] == ["mine/first"]
    assert done.stderr == "hello\n"


def test_an_import_that_is_done_in_time_leaves_no_alarm_behind(install):
    before = signal.getsignal(signal.SIGALRM), signal.getsignal(signal.SIGINT), os._exit
    install("strangers_quick", "mine", MINE)
    assert registry.find("mine/first").name == "mine/first"
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert (signal.getsignal(signal.SIGALRM), signal.getsignal(signal.SIGINT), os._exit) == before


def test_a_process_that_a_package_forks_at_import_still_ends(install):
    forks = "import os\nchild = os.fork()\nif not child: os._exit(7)\n"
    install("strangers_fork", "mine", forks + "status = os.waitpid(child, 0)[1]\n" + MINE)
    assert registry.find("mine/first").name == "mine/first"
    assert os.waitstatus_to_exitcode(sys.modules["strangers_fork"].status) == 7


@pytest.mark.parametrize("text", ["0", "-1", "x", "nan"])
def test_a_time_limit_that_is_none_is_refused(install, monkeypatch, text):
    install("strangers_limit", "mine", MINE)
    monkeypatch.setenv("FEATURELAB_IMPORT_SECONDS", text)
    assert "FEATURELAB_IMPORT_SECONDS is a number of seconds above 0" in refused(registry.experiments)


def test_an_entry_point_that_is_no_experiment_is_refused(install):
    folder = install("strangers_number", "mine", "number = 3")
    info = folder / "strangers_number-1.0.dist-info" / "entry_points.txt"
    info.write_text(f"[{installing.GROUP}]\nmine = strangers_number:number\n")
    assert "neither an Experiment nor a module" in refused(registry.experiments, "mine")


def test_an_entry_point_that_names_another_system_is_refused(install):
    install("strangers_misnamed", "yours", MINE)
    assert "strangers_misnamed declares no experiment of yours" in refused(registry.experiments, "yours")


def test_a_package_cannot_take_the_name_of_an_experiment_of_ours(install, capsys):
    ours = registry.find("neural_feature_ansatz/init_scale")
    before = registry.experiments()
    install("strangers_twin", "neural_feature_ansatz", MINE.replace("mine/first", ours.name))
    assert registry.find(ours.name) is ours
    assert registry.experiments() == before
    says = f"{ours.name} of the package strangers_twin is left out: there is another of that name"
    assert capsys.readouterr().err == f"featurelab: {says}\n"
