"""A store that others can write to: what they wrote there is refused in one line or shown harmlessly, never obeyed."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hostile import Answer, Commands, accept, check_line, quicken, written
from mlflow.entities import RunTag

from featurelab.pipelines.engine.experiment.bounds import above
from featurelab.pipelines.engine.experiment.config import Config
from featurelab.pipelines.engine.experiment.experiment import Experiment
from featurelab.pipelines.engine.sweep.begin import open_sweep
from featurelab.pipelines.engine.sweep.plan import Plan
from featurelab.pipelines.engine.sweep.reports import Reports
from featurelab.pipelines.engine.sweep.settle import settle
from featurelab.pipelines.engine.trial import run as trial
from featurelab.tracking.report import page
from featurelab.tracking.store.connect import Store, attach, connect

SCRIPT = "<script>alert(1)</script>\"onload=alert(1) x='javascript:alert(1)"
REPORT_SCRIPT = Path(page.__file__).with_name("templates").joinpath(page.SCRIPT).read_text().strip()
TERMINAL = "\x1b[2J\x1b]0;mine\x07\u202egpj.exe"
EVIL = [
    *(
        "",
        " ",
        "\n\n",
        SCRIPT,
        TERMINAL,
        "[bold red]x[/]",
        "[/]",
        "../../../../tmp/x",
        "/etc/passwd",
        "a\x00b",
        "é" * 5000,
    ),
    *(
        "__import__('os').system('touch x')",
        "!!python/object/apply:os.system ['touch x']",
        "null",
        "[]",
        "{}",
        '"x"',
        "1e400",
    ),
    *(
        "nan",
        "-1",
        "9" * 4000,
        "9" * 5000,
        "[" * 5000,
        '{"a":' * 3000,
        '{"lr": {"lr": []}}',
        '{"seed": "x"}',
        '[["lr"]]',
        "٣",
    ),
]
TAGS_OF_SWEEPS = ["experiment", "scale", "sweep", "status", "seconds", "verdict", "kind", "axes", "sweep_run_id"]
TAGS_OF_TRIALS = [
    "experiment",
    "scale",
    "config",
    "axes",
    "workers",
    "gpus",
    "trial",
    "status",
    "reason",
    "mlflow.runName",
]


class LineConfig(Config):
    slope: float = 1.0
    lengths: tuple[int, ...] = (1, 2)


lines = Experiment(
    name="hostile/lines",
    figures=("Fig. 1",),
    title="straight lines",
    laptop=LineConfig(),
    paper=LineConfig(),
    grid={"slope": [1.0, 2.0], "seed": [0, 1, 2]},
    metric="loss/test",
    minutes=0.1,
)


@lines.trial
def draw_line(config: LineConfig, recorder: Any) -> None:
    for step in range(3):
        recorder.log({"loss/test": config.slope * step}, step=step)


@lines.claim("steeper", says="the steeper line ends higher", expect=above(0))
def steeper(runs: Any) -> float:
    return runs.final("loss/test", slope=2.0) - runs.final("loss/test", slope=1.0)


@lines.draw(size=(1, 1))
def plot(runs: Any, axes: Any) -> None:
    axes[0, 0].plot(runs.curves("loss/test"))


class OurPackage:
    """An entry point, as the metadata of an installed package gives them."""

    name, value = "hostile/lines", "hostile_lines"
    module, dist = value, None

    def load(self) -> Experiment:
        return lines


@dataclass(frozen=True)
class Swept:
    """A finished and judged sweep in a store that can be put back to what it was."""

    commands: Commands
    store: Store
    sweep: str
    trials: list[str]

    def set(self, run_id: str, key: str, value: str) -> None:
        """Write a tag past all checks, as somebody with access to the database would."""
        self.store.client._tracking_client.store.set_tag(run_id, RunTag(key, value))

    def write(self, run_id: str, path: str, text: str) -> None:
        place = Path(self.store.get_run(run_id).info.artifact_uri.removeprefix("file://"), path)
        place.write_text(text, encoding="utf-8", errors="surrogateescape")

    def ask(self, *arguments: str) -> Answer:
        """What a command says, which must be harmless."""
        answer = self.commands(*arguments)
        assert "Traceback" not in answer.err
        assert all(line.isprintable() for line in answer.err.splitlines()), repr(answer.err)
        assert all(line.isprintable() for line in answer.out.split("\n")), repr(answer.out)
        if answer.code == 2:
            assert answer.out == ""
            check_line(answer.err)
        return answer


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Commands, Path, str, list[str]]]:
    home = tmp_path_factory.mktemp("shared")
    with pytest.MonkeyPatch.context() as patch:
        quicken(patch, home, [OurPackage()])
        patch.setattr("featurelab.pipelines.engine.sweep.begin.prepare", accept)
        patch.setattr("featurelab.pipelines.engine.sweep.ray.cluster.connect_ray", accept)
        store = connect(f"sqlite:///{home / 'mlflow.db'}", timeout=60)
        configs = lines.configs("laptop")
        plan = Plan.of(lines, configs, ["slope", "seed"], "laptop", kind="reproduce", metric="loss/test")
        sweep = open_sweep(plan, "shared", store)
        ids = []
        for index, config in enumerate(configs):
            tags = {"sweep": "shared", "sweep_run_id": sweep, "kind": "reproduce", "trial": str(index)}
            options: dict[str, Any] = {"scale": "laptop", "outbox": home / "outbox", "axes": ["slope", "seed"]}
            ids.append(trial.run_trial(lines, config, store, tags=tags, **options).run_id)
        settle(plan, sweep, store, home / "outbox", Reports())
        commands = Commands(home)
        assert commands("judge", sweep).code == 0
        patch.setattr("featurelab.pipelines.engine.trial.run.run_trial", accept)
        store.client._tracking_client.store.engine.dispose()
        shutil.copy(home / "mlflow.db", home / "kept.db")
        shutil.copytree(home / "mlruns", home / "kept")
        yield commands, home, sweep, ids


@pytest.fixture
def swept(original: tuple[Commands, Path, str, list[str]], monkeypatch: pytest.MonkeyPatch) -> Swept:
    commands, home, sweep, ids = original
    store = attach(f"sqlite:///{home / 'mlflow.db'}")
    store.client._tracking_client.store.engine.dispose()
    for name in ("mlflow.db", "mlflow.db-wal", "mlflow.db-shm"):
        (home / name).unlink(missing_ok=True)
    shutil.rmtree(home / "mlruns")
    shutil.copy(home / "kept.db", home / "mlflow.db")
    monkeypatch.setattr("featurelab.tracking.store.connection._opened", {})  # this other file is what we mean
    shutil.copytree(home / "kept", home / "mlruns")
    return Swept(commands, store, sweep, ids)


def asked(swept: Swept) -> dict[str, Answer]:
    """What every command that reads says now."""
    return {
        "judge": swept.ask("judge", swept.sweep),
        "report": swept.ask("report", "--out=page"),
        "compare": swept.ask("compare", *swept.trials[:2]),
        "as JSON": swept.ask("compare", *swept.trials[:2], "--json"),
        "rerun": swept.ask("rerun", swept.trials[0]),
        "rerun of the sweep": swept.ask("rerun", swept.sweep),
        "resume": swept.ask("sweep", "hostile/lines", "--resume=shared"),
        "ui": swept.ask("ui", "--port=5001"),
    }


def scripts(page: Path) -> list[str]:
    """What follows each beginning of a script in a page, up to its end."""
    return [rest.partition("</script>")[0].partition(">")[2] for rest in page.read_text().split("<script")[1:]]


@pytest.fixture(autouse=True)
def no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("featurelab.pipelines.engine.command.mlflow_pages.serve", accept)


def test_an_untouched_store_is_read(swept: Swept) -> None:
    answers = asked(swept)
    assert [answers[name].code for name in ("judge", "report", "compare", "as JSON")] == [0] * 4
    assert all(answers[name].accepted for name in ("rerun", "rerun of the sweep", "resume", "ui"))


TAGS = [*(f"sweep {key}" for key in TAGS_OF_SWEEPS), *(f"trial {key}" for key in TAGS_OF_TRIALS)]


def check_tag(swept: Swept, key: str, values: list[str]) -> None:
    kind, _, tag = key.partition(" ")
    run_id = swept.sweep if kind == "sweep" else swept.trials[0]
    page = swept.commands.home / "page" / "index.html"
    before = {path for path, _ in written(swept.commands.home.parent)}
    for value in values:
        swept.set(run_id, tag, value)
        answers = asked(swept)
        assert all(answer.accepted or answer.code in (0, 1, 2) for answer in answers.values()), answers
        assert not page.exists() or scripts(page) == [REPORT_SCRIPT]
    new = {path for path, _ in written(swept.commands.home.parent)} - before
    inside = {Path(path) for path in new}
    beside = {path for path in inside if path.parent.name == "files" and path.suffix in (".csv", ".json", ".pdf")}
    assert {path.name for path in inside - beside} <= {"page", "index.html", "files"}


@pytest.mark.parametrize("key", TAGS)
def test_hostile_tags_are_refused_or_shown(key: str, swept: Swept) -> None:
    check_tag(swept, key, EVIL[TAGS.index(key) :: len(TAGS)])  # every one of them with one tag or another


@pytest.mark.heavy
@pytest.mark.parametrize("key", TAGS)
def test_each_hostile_tag_is_refused_or_shown(key: str, swept: Swept) -> None:
    check_tag(swept, key, EVIL)


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.heavy)])
@pytest.mark.parametrize("path", ["plan.json", "verdicts.json"])
def test_hostile_artifacts_are_refused_or_shown(path: str, every: int, swept: Swept) -> None:
    original = json.dumps(swept.store.read_json(swept.sweep, path))
    page = swept.commands.home / "page" / "index.html"
    readers = [("rerun", swept.sweep), ("sweep", lines.name, "--resume=shared")]
    for text in EVIL[:: 5 if every > 1 else 1] + hostile_variants(original, every):
        swept.write(swept.sweep, path, text)
        for request in readers if path == "plan.json" else [("report", "--out=page")]:
            answer = swept.ask(*request)
            assert answer.accepted or answer.code in (0, 2)
        assert not page.exists() or scripts(page) == [REPORT_SCRIPT]


def hostile_variants(text: str, every: int) -> list[str]:
    """A JSON document with each of its values, in turn, replaced by things of another kind: by all three, or by one."""
    document = json.loads(text)
    whole = document if isinstance(document, dict) else document[0]
    others = [None, SCRIPT, [[1]]]
    variants = []
    for number, (key, other) in enumerate(product(whole, others)):
        if (number // len(others) + number) % every:  # of three it is another one for each value
            continue
        changed = {**whole, key: other}
        variants.append(json.dumps(changed if isinstance(document, dict) else [changed]))
    return variants


def test_a_plan_of_too_many_trials_or_workers_is_refused(swept: Swept) -> None:
    plan = swept.store.read_json(swept.sweep, "plan.json")
    for change in (
        {"configs": [{}] * 100_001},
        {"resources": plan["resources"] | {"workers": 10**400}},
        {"resources": plan["resources"] | {"cpus": float("inf")}},
        {"resources": plan["resources"] | {"timeout": -1}},
        {"configs": [{"seed": "__import__('os')"}]},
        {"axes": ["__class__"]},
        {"most_seeds": 10**12},
        {"experiment": "neural_feature_ansatz/init_scale"},
    ):
        swept.write(swept.sweep, "plan.json", json.dumps(plan | change))
        for request in (("rerun", swept.sweep), ("sweep", lines.name, "--resume=shared")):
            answer = swept.ask(*request)
            assert answer.code == 2, change
            assert "plan.json" in answer.err


def test_arrays_of_python_objects_are_not_unpickled(swept: Swept, monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy as np

    from featurelab.pipelines.engine.sweep.records import read_trials
    from featurelab.pipelines.engine.verdict.judge import collect

    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (swept.commands.home / "exploded",)

    trap = swept.commands.home / "weights.npz"
    np.savez(trap, weights=np.array([Bomb()], dtype=object))
    swept.store.log_file(swept.trials[0], trap, "arrays")
    results = collect(read_trials(swept.store, lines.name, swept.sweep), swept.store)
    with pytest.raises(ValueError, match="pickle"):
        results.arrays("weights")
    assert not (swept.commands.home / "exploded").exists()
