"""What the documentation shows works: its Python runs, its commands parse, its links lead somewhere."""

import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.exceptions import TyperException

from featurelab.pipelines.engine.command.cli import app
from featurelab.pipelines.engine.experiment.axes import lay_out, parse_axis
from featurelab.pipelines.engine.experiment.catalogue import registry
from featurelab.pipelines.engine.experiment.config import parse_overrides
from featurelab.pipelines.engine.experiment.experiment import Experiment
from featurelab.pipelines.engine.sweep.begin import open_sweep
from featurelab.pipelines.engine.sweep.plan import Plan
from featurelab.pipelines.engine.trial.run import run_trial
from featurelab.pipelines.engine.verdict.judge import judge
from featurelab.tracking.outbox.null import NullRecorder
from featurelab.tracking.store.connect import connect

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
STRANGER = "my_lab/weight_decay"
THEIRS = "my_lab/"  # experiments of the packages that pages write


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def commands(program: str) -> list[list[str]]:
    """Every command line of `program` in the fenced bash blocks of all pages, as words."""
    text = "\n".join(block for page in PAGES for block in blocks(page, "bash")).replace("\\\n", " ")
    lines = [shlex.split(line, comments=True) for line in text.splitlines()]
    lines = [words[: words.index(">")] if ">" in words else words for words in lines]
    return [words[1:] for words in lines if words[:1] == [program]]


def parsed(words: list[str]) -> tuple[str, dict[str, Any]]:
    """A `featurelab` command and its parameters as the command line itself reads them, without running it."""
    command = typer.main.get_command(app)
    context = command.make_context("featurelab", list(words))
    path: list[str] = []
    while hasattr(context.command, "resolve_command"):
        rest = [*context._protected_args, *context.args]
        name, command, rest = context.command.resolve_command(context, rest)
        path.append(name)
        context = command.make_context(name, rest, parent=context)
    experiment = [context.params[one.name] for one in command.params if one.metavar == "EXPERIMENT"]
    return " ".join(path), context.params | dict(zip(["experiment"], experiment, strict=False))


FEATURELAB = commands("featurelab")
PYTHON = [block for page in PAGES for block in blocks(page, "python")]


@pytest.mark.parametrize("words", FEATURELAB, ids=" ".join)
def test_every_documented_command_is_accepted(words: list[str]) -> None:
    name, said = parsed(words)
    given = [said["experiment"]] if said.get("experiment") else said.get("names") or []
    names = [each for each in given if "=" not in each]
    for experiment in names:
        if not experiment.startswith(THEIRS):
            assert registry.select([experiment])
    if names and names[0].startswith(THEIRS):
        return
    if name == "run":
        experiment = registry.find(said["experiment"])
        experiment.preset(said["scale"]).but(**parse_overrides(said["settings"] or [], type(experiment.laptop)))
    if name == "reproduce" and (pairs := [each for each in given if "=" in each]):
        (experiment,) = registry.select(names)
        assert experiment.configs(said["scale"], parse_overrides(pairs, type(experiment.laptop)))
    if name in ("sweep", "map") and names:  # without one, it is in a file
        experiment = registry.find(said["experiment"])
        axes = {key: parse_axis(domain) for key, _, domain in (text.partition("=") for text in said["over"] or [])}
        assert lay_out(experiment.preset(said["scale"] or "laptop"), axes or dict(experiment.sweep_axes), 1, seed=0)


@pytest.mark.parametrize("wrong", ["swep", "sweep x --no-such-option", "sweep x --scheduler best", "data fetch"])
def test_a_wrong_command_would_be_noticed(wrong: str) -> None:
    with pytest.raises(TyperException):
        parsed(wrong.split())


def test_the_documentation_shows_every_command() -> None:
    command = typer.main.get_command(app)
    assert {parsed(words)[0].split()[0] for words in FEATURELAB} == set(command.commands)  # type: ignore[attr-defined]


def test_every_documented_make_target_exists() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    asked = {words[0] for words in commands("make")}
    assert {"reproduce", "test"} <= asked <= targets


@pytest.mark.parametrize("source", PYTHON, ids=[block.partition("\n")[0] for block in PYTHON])
def test_python_blocks_run(
    source: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "TrainingArguments" in source:
        pytest.importorskip("accelerate")
        monkeypatch.chdir(tmp_path)
    if "import featurelab as fl" in source:  # it would write its store into the working directory
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    names: dict[str, Any] = {"__name__": "documentation"}
    exec(compile(source, "<documentation>", "exec"), names)
    if "probe" in names:
        assert {"nfa/0", "cnfa/0", "centered_ratio/3"} <= names["probe"].latest().keys()
        assert "nfa/3" in names["probe"].skipped
        assert {"nc1/3", "nc3/3"} <= names["collapse"].latest().keys()
    if "figure" in names:
        experiment = names["figure"]
        assert isinstance(experiment, Experiment)
        assert experiment.run_trial is not None
        kept: dict[str, float] = {}
        recorder = NullRecorder(listeners=[lambda metrics, step: kept.update(metrics)])
        experiment.run_trial(experiment.small_configs()[0], recorder)
        assert experiment.metric in kept


def install_stranger(site: Path) -> None:
    """Put the example package of `docs/add_a_figure.md`, with its entry points, where Python finds packages."""
    (source,) = [block for block in PYTHON if block.startswith("# my_lab/")]
    package = site / "my_lab"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / Path(source.splitlines()[0].split("/")[1]).name).write_text(source)
    (toml,) = blocks(ROOT / "docs" / "add_a_figure.md", "toml")
    ((group, points),) = tomllib.loads(toml)["project"]["entry-points"].items()
    info = site / "my_lab-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-lab\nVersion: 1.0\n")
    lines = [f"[{group}]", *(f"{name} = {target}" for name, target in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines))


def test_the_example_experiment_is_found_judged_and_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_stranger(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert "my_lab" in registry.systems()
    experiment = registry.find(STRANGER)
    store = connect(f"sqlite:///{tmp_path}/mlflow.db")
    configs = experiment.configs("laptop")
    sweep_run_id = open_sweep(Plan.of(experiment, configs, experiment.varied("laptop"), "laptop"), "example", store)
    for index, config in enumerate(configs):
        tags = {"sweep": "example", "sweep_run_id": sweep_run_id, "trial": str(index)}
        outcome = run_trial(experiment, config, store, scale="laptop", outbox=tmp_path / "outbox", tags=tags)
        assert outcome.status == "finished", outcome.reason
    judged = judge(sweep_run_id, store)
    assert len(judged.trials) == 12
    assert [verdict.status for verdict in judged.verdicts] == ["holds"]
    assert store.download(sweep_run_id, judged.figure).stat().st_size > 10_000


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.stem in registry.systems()], ids=lambda page: page.stem
)
def test_the_page_of_a_system_names_its_figures_and_what_fails(page: Path) -> None:
    lines = [row for row in page.read_text().splitlines() if "|" in row]
    rows = [[cell.strip(" `") for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in lines]
    experiments = registry.experiments(page.stem)
    shown = [row for row in rows if row[0].startswith(f"{page.stem}/")]
    assert [(row[0], row[1], float(row[3])) for row in shown] == [(e.name, e.figure, e.minutes) for e in experiments]
    known = {claim.id for experiment in experiments for claim in experiment.claims}
    claims = [(e, claim, claim.recorded().laptop) for e in experiments for claim in e.claims]
    failing = {
        (c.id, e.figure) for e, c, found in claims if found and found.seeds and found.status in ("fails", "undecided")
    }
    assert {(row[0], row[1]) for row in rows if row[0] in known and len(row) == 3} == failing


@pytest.mark.parametrize("system", registry.systems())
def test_a_claim_says_why_it_is_not_specific_and_no_other_does(system: str) -> None:
    for experiment in registry.experiments(system):
        for claim in experiment.claims:
            known = claim.recorded()
            standing = [at for at in (known.laptop, known.desktop, known.paper) if at and at.specific is False]
            if any(at.status == "holds" for at in standing):
                assert known.unspecific, f"{experiment.name}: {claim.id} holds under a control: unspecific = says why"
            if not standing:
                assert not known.unspecific, f"{experiment.name}: no control leaves {claim.id} standing"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        if not target.startswith(("http://", "https://")):
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_a_page_names_are_there(page: Path) -> None:
    named = re.findall(r"`((?:tests|pipelines|tracking|modules|benchmarks|docs)/[\w/]+\.pyi?)", page.read_text())
    assert [path for path in named if not (ROOT / path).is_file()] == []
