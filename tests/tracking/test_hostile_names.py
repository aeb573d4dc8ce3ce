"""Names that become paths stay in their folder, shown texts are harmless, and no file is executed as code."""

import ast
import json
import os
import shutil
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from featurelab.tracking.errors import RunNotFound, StoreError
from featurelab.tracking.lines import escaped, line, masked, quoted, without_credentials
from featurelab.tracking.outbox.record import Recorder
from featurelab.tracking.outbox.sync import sync
from featurelab.tracking.store import artifacts
from featurelab.tracking.store.store import Store

ROOT = Path(__file__).parents[2]
PARTS = [
    "..",
    ".",
    "",
    "a",
    "~",
    "C:",
    "\\",
    "\x00",
    "\n",
    "\u202e",
    "é",
    "a" * 300,
    "%2e%2e",
    "..\\..",
    "aux.txt",
    " ",
]
paths = st.one_of(st.lists(st.sampled_from(PARTS), max_size=5).map("/".join), st.text(max_size=30))
texts = st.one_of(st.text(max_size=200), st.text(st.characters(categories=["Cc", "Cf", "Cs", "Zl", "Zp"]), max_size=50))
often = settings(max_examples=200)


def below(folder: Path) -> set[str]:
    return {os.path.join(place, name) for place, _, files in os.walk(folder) for name in files}


@often
@given(paths)
def test_no_artifact_leaves_its_folder(tmp_path: Path, path: str) -> None:
    root = Path(tempfile.mkdtemp(dir=tmp_path))
    before = below(tmp_path)
    reason = ""
    try:
        target = artifacts.place(root, path)
    except ValueError as refusal:
        reason = str(refusal)
        assert before == below(tmp_path)
    assert reason.isprintable()
    if not reason:
        assert target.resolve().is_relative_to(root.resolve())
        target.write_text("")
        assert below(tmp_path) - before == {str(target)}
    shutil.rmtree(root)


@pytest.mark.parametrize(
    "name", ["../x", "/tmp/x", "a/../../../x", "a\\..\\x", "C:x", "a\0b", "a" * 300, "a//b", "\u202ex"]
)
def test_a_recorder_refuses_names_outside_its_run(store: Store, tmp_path: Path, name: str) -> None:
    run_id = store.start_run("hostile", "names")
    with Recorder(store, run_id, outbox=tmp_path / "outbox") as recorder:
        before = below(tmp_path)
        with pytest.raises(ValueError, match="artifact path"):
            recorder.array(name, x=[1.0])
        with pytest.raises(ValueError, match="artifact path"):
            recorder.json(name, {})
        with pytest.raises(ValueError, match="artifact path"):
            recorder.text(name, "")
        assert below(tmp_path) == before


@often
@given(texts)
@example("../../x")
@example("a" * 257)
def test_an_arbitrary_text_is_not_a_run(store: Store, run_id: str) -> None:
    with pytest.raises(RunNotFound) as refusal:
        store.get_run(run_id)
    assert str(refusal.value).isprintable()
    assert len(str(refusal.value)) < 400


@pytest.mark.parametrize("run_id", ["../x", "/tmp/x", "", "a/b", "a\0", ".", "a.b"])
def test_a_journal_stays_in_the_outbox(store: Store, tmp_path: Path, run_id: str) -> None:
    with pytest.raises(ValueError, match="is not a run id"):
        Recorder(store, run_id, outbox=tmp_path / "outbox")
    assert not (tmp_path / "outbox").exists()


HEADER = {"uri": "http://127.0.0.1:1", "run_id": "../../x", "experiment": "a/b"}
JOURNALS: list[Any] = [
    *([], {}, 1, "x", {"uri": None}, {"uri": 5}, {"uri": "sqlite:////etc/passwd"}, {"uri": "x" * 100_000}),
    *(
        {"uri": "http://[::1"},
        {"uri": "\x1b[2J"},
        HEADER,
        HEADER | {"m": 5},
        HEADER | {"sent": "x"},
        HEADER | {"end": []},
    ),
]


def test_broken_journals_are_reported_and_left_unchanged(tmp_path: Path) -> None:
    outbox = tmp_path / "outbox"
    outbox.mkdir()
    for number, entry in enumerate(JOURNALS):
        (outbox / f"run{number}.jsonl").write_text(json.dumps(entry) + "\n")
    (outbox / "deep.jsonl").write_text("[" * 100_000 + "\n")
    (outbox / "binary.jsonl").write_bytes(bytes(range(256)) + b"\n")
    before = below(tmp_path)
    done = sync(outbox, timeout=2.0)
    assert below(tmp_path) == before
    assert (done.sent, done.busy, len(done.failed)) == ([], [], len(JOURNALS) + 2)
    assert all(reason.isprintable() and len(reason) < 500 for reason in done.failed.values())


@often
@given(texts)
def test_a_line_is_printable_short_and_a_single_line(text: str) -> None:
    assert line(text).isprintable()
    assert len(line(text, 60)) <= 60
    assert escaped(text).isprintable()
    assert len(quoted(text)) <= 80
    assert quoted(text).isprintable()


word = st.text("abcdefghijklmnopqrstuvwxyz0123456789-_.~!$()*+,;=%", min_size=9, max_size=20)


@often
@given(word, word, st.sampled_from(["http", "https", "postgresql", "mysql+pymysql", "mssql"]), texts)
def test_credentials_in_addresses_are_masked_in_any_text(user: str, password: str, scheme: str, text: str) -> None:
    password = f"Pass{password}"
    uri = f"{scheme}://{user}:{password}@host.example:5000/db?sslmode=on&password={password}"
    for shown in (masked(uri), masked(f"cannot reach '{uri}': {text}"), line(f"({uri})"), quoted(uri), quoted([uri])):
        assert password not in shown.replace(user, "") or password in text
    assert without_credentials(uri) == f"{scheme}://host.example:5000/db?sslmode=on&password="
    assert masked(f"{scheme}://{password}@host.example/") == f"{scheme}://***@host.example/"


@pytest.mark.parametrize(
    "text", ["a@b.example", "sqlite:////home/me@work/x.db", "http://host:80/a@b", "key=value", "x: y@z"]
)
def test_texts_without_credentials_are_unchanged(text: str) -> None:
    assert masked(text) == text


@pytest.mark.parametrize(
    "text", ["//:" * 30_000 + "@", "?token=" * 20_000, "@" * 100_000, "a:" * 50_000 + "@b", "?" * 100_000]
)
def test_long_texts_are_masked_quickly(text: str) -> None:
    began = time.process_time()
    line(text)
    assert time.process_time() - began < 1


@pytest.mark.parametrize(
    "name", ["MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_PASSWORD", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY"]
)
def test_secrets_of_the_environment_are_masked(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "s3cret-s3cret")
    monkeypatch.setenv(f"{name}_PATH", "/home/me/token")
    assert masked("it is s3cret-s3cret, in /home/me/token") == "it is ***, in /home/me/token"


def test_a_journal_contains_no_credentials_and_is_sent_with_those_of_the_environment(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = "http://me:hunter2-hunter2@store.example:5000"
    recorder = Recorder(replace(store, uri=address), store.start_run("a/b", "x"), outbox=tmp_path / "outbox")
    recorder.log({"loss": 1.0}, 0)
    (journal,) = (tmp_path / "outbox").glob("*.jsonl")
    text = journal.read_text()
    assert recorder.close()
    assert "hunter2" not in text
    assert json.loads(text.splitlines()[0])["uri"] == "http://store.example:5000"

    connected = []

    def connect(uri: str, **options: Any) -> Store:
        connected.append(uri)
        raise StoreError("away")

    monkeypatch.setattr("featurelab.tracking.outbox.sync.connect", connect)
    journal.write_text(text)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    assert sync(tmp_path / "outbox").failed == {journal.stem: "away"}
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:hunter2-hunter2@other.example:5000")
    advice = "to send it, set MLFLOW_TRACKING_URI to that"
    assert sync(tmp_path / "outbox").failed == {
        journal.stem: f"the journal is for the store at http://store.example:5000: {advice}"
    }
    assert connected == [address], "no other server is contacted"


def calls(tree: ast.AST) -> list[tuple[str, ast.Call]]:
    """Return every call with the name that it calls, such as `torch.load`."""
    return [(ast.unparse(node.func), node) for node in ast.walk(tree) if isinstance(node, ast.Call)]


def unsafe(tree: ast.AST) -> list[str]:
    """Return the imports and calls of a source file that could execute what it reads."""
    findings = []
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        banned = {"pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve", "cPickle", "tempfile.mktemp"}
        findings += [f"import {name}" for name in names if name.split(".")[0] in banned or name == "ray.cloudpickle"]
    for name, call in calls(tree):
        arguments = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
        last = name.rpartition(".")[2]
        if name in ("eval", "exec", "compile", "__import__", "os.system", "os.popen") or last in (
            "read_pickle",
            "mktemp",
        ):
            findings.append(name)
        if last in ("load", "load_from_checkpoint") and name.startswith(("torch", "np", "numpy", "pl.", "Learner")):
            required = ("allow_pickle", "False") if name.startswith(("np", "numpy")) else ("weights_only", "True")
            if arguments.get(required[0]) != required[1]:
                findings.append(f"{name} without {'='.join(required)}")
        if name.startswith("yaml.") and last not in ("safe_load", "safe_dump", "scan", "compose"):  # nodes only
            findings.append(name)
        if arguments.get("shell", "False") != "False" or arguments.get("verify") == "False":
            findings.append(f"{name} with {arguments}")
        if arguments.get("trust_remote_code", "False") != "False" or arguments.get("allow_pickle", "False") != "False":
            findings.append(f"{name} with {arguments}")
        if last in ("Markup",) or "| safe" in ast.unparse(call):
            findings.append(name)
    return findings


def test_no_source_file_executes_what_it_reads() -> None:
    sources = [
        path
        for package in ("modules", "pipelines", "tracking", "benchmarks")
        for path in (ROOT / package).rglob("*.py")
    ]
    assert len(sources) > 50
    findings = {str(path.relative_to(ROOT)): unsafe(ast.parse(path.read_text(encoding="utf-8"))) for path in sources}
    assert {path: unsafe_parts for path, unsafe_parts in findings.items() if unsafe_parts} == {}
    for template in ROOT.glob("tracking/report/templates/*"):
        assert "|safe" not in template.read_text().replace(" ", "")


@pytest.mark.parametrize(
    "source",
    [
        *(
            "eval('1')",
            "import pickle",
            "from pickle import loads",
            "torch.load(x)",
            "torch.load(x, weights_only=False)",
        ),
        *(
            "np.load(x)",
            "np.load(x, allow_pickle=True)",
            "yaml.load(x)",
            "subprocess.run(x, shell=True)",
            "pd.read_pickle(x)",
        ),
        *("os.system(x)", "load_dataset(x, trust_remote_code=True)", "exec(x)", "torch.load(x, map_location='cpu')"),
    ],
)
def test_the_search_for_unsafe_calls_finds_them(source: str) -> None:
    assert unsafe(ast.parse(source))
