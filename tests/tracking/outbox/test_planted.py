"""A journal, an outbox or a store in a folder from somebody else is untrusted and has no effect outside the folder."""

from __future__ import annotations

import http.server
import json
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from featurelab.tracking.errors import StoreError
from featurelab.tracking.outbox.bound import Bound
from featurelab.tracking.outbox.journal import Journal
from featurelab.tracking.outbox.locks import exclusive_lock, in_use
from featurelab.tracking.outbox.record import Recorder
from featurelab.tracking.outbox.sync import sync
from featurelab.tracking.store.connect import attach

OTHER_USER = 65534


@pytest.fixture
def outbox(tmp_path):
    path = tmp_path / "outbox"
    path.mkdir()
    return path


@pytest.fixture
def run_id(store):
    return store.start_run("system/figure", "run")


@pytest.fixture
def plant(store, run_id, outbox):
    """Write a journal for an existing run, as an attacker might."""

    def write(*entries, uri=None, name=run_id):
        header = {"uri": uri or store.uri, "run_id": name, "experiment": ""}
        path = outbox / f"{name}.jsonl"
        path.write_text("".join(json.dumps(entry) + "\n" for entry in (header, *entries)))
        return path

    return write


def refusal(outbox, store, run_id):
    done = sync(outbox, known=store.uri, timeout=5)
    assert done.sent == []
    return done.failed[run_id]


class Listener(http.server.BaseHTTPRequestHandler):
    heard: list[str]

    def do_GET(self):
        self.heard.append(str(self.headers))
        self.send_response(401)  # any other status would be repeated for a minute
        self.end_headers()

    do_POST = do_GET

    def log_message(self, *args):
        pass


@pytest.fixture
def listener() -> Iterator[http.server.ThreadingHTTPServer]:
    Listener.heard = []
    site = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Listener)
    threading.Thread(target=site.serve_forever, daemon=True).start()
    yield site
    site.shutdown()


def test_a_server_named_by_a_journal_never_receives_the_tracking_token(
    store, run_id, outbox, plant, listener, monkeypatch
):
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "s3cret-s3cret")
    address = f"http://127.0.0.1:{listener.server_port}"
    plant({"t": 1, "s": 0, "m": {"loss": 1.0}}, uri=address)
    assert f"the journal is for the store at {address}" in refusal(outbox, store, run_id)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store.uri)
    assert address in sync(outbox).failed[run_id]
    assert Listener.heard == []
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    sync(outbox, timeout=5)
    assert "s3cret-s3cret" in Listener.heard[0], "the server that the user chose gets it"


@pytest.mark.parametrize("target", ["../../../precious", "/{}/precious", "training/../../../../../precious"])
def test_a_journal_can_delete_only_inside_its_run(store, run_id, outbox, plant, tmp_path, target):
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.tex").write_text("x")
    plant({"discard": target.format(tmp_path)}, {"end": "FINISHED", "t": 1})
    assert "must be relative and stay inside the run" in refusal(outbox, store, run_id)
    assert (precious / "thesis.tex").read_text() == "x"


def test_an_artifact_address_in_the_store_cannot_cause_deletion_elsewhere(store, run_id, outbox, plant, tmp_path):
    precious = tmp_path / "home" / "training"
    precious.mkdir(parents=True)
    with store.client._tracking_client.store.ManagedSessionMaker() as session:
        from mlflow.store.tracking.dbmodels.models import SqlRun

        session.query(SqlRun).filter_by(run_uuid=run_id).update({"artifact_uri": f"file://{precious.parent}"})
    plant({"discard": "training"}, {"end": "FINISHED", "t": 1})
    assert sync(outbox, known=store.uri).sent == [run_id], "the rest of the journal is sent"
    assert precious.exists()
    with pytest.raises(StoreError, match="do not lie in the folder of the store"):
        store.delete_artifacts(run_id, "training")


def test_a_link_in_the_folder_of_a_run_cannot_cause_deletion_elsewhere(store, run_id, tmp_path):
    store.log_json(run_id, {}, "a.json")
    precious = tmp_path / "precious"
    precious.mkdir()
    place = Path(store.get_run(run_id).info.artifact_uri)
    (place / "training").symlink_to(precious)
    with pytest.raises(StoreError, match="do not lie in the folder of the store"):
        store.delete_artifacts(run_id, "training")
    assert precious.exists()


def test_links_among_the_artifacts_are_not_followed(store, run_id, outbox, plant, tmp_path):
    (tmp_path / "secret").write_text("s3cret")
    for folder, link in (("1", "kept.txt"), ("1", "inner/kept.txt")):
        journal = plant({"end": "FINISHED", "t": 1})
        place = outbox / run_id / folder / link
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(tmp_path / "secret")
        assert "is a symbolic link or not a plain file" in refusal(outbox, store, run_id)
        assert store.artifact_paths(run_id, "") == []
        assert journal.exists()
        place.unlink()
    (outbox / run_id / "1" / "inner").rmdir()
    (outbox / run_id / "1").rmdir()
    (outbox / run_id / "1").symlink_to(tmp_path)
    assert "is a symbolic link or not a plain file" in refusal(outbox, store, run_id)


def test_a_journal_that_is_a_link_or_not_a_file_is_not_written_to(store, run_id, outbox, tmp_path):
    target = tmp_path / "notes"
    target.write_text("mine, cut short")
    journal = outbox / f"{run_id}.jsonl"
    for make in (journal.symlink_to, journal.hardlink_to, lambda _: os.mkfifo(journal)):
        make(target)
        assert re.search("symbolic link|second name|not a plain file", refusal(outbox, store, run_id))
        assert not in_use(outbox, run_id)
        with pytest.raises(OSError, match=r"symbolic link|second name|not a plain file"):
            Recorder(store, run_id, outbox=outbox)
        journal.unlink()
    assert target.read_text() == "mine, cut short"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")
def test_files_of_another_user_are_left_alone(store, run_id, outbox, plant):
    journal = plant({"t": 1, "s": 0, "m": {"loss": 1.0}})
    os.chown(journal, OTHER_USER, OTHER_USER)
    assert "belongs to another user" in refusal(outbox, store, run_id)
    os.chown(journal, 0, 0)
    os.chown(outbox, OTHER_USER, OTHER_USER)
    with pytest.raises(StoreError, match="belongs to another user"):
        sync(outbox, known=store.uri)
    assert store.get_run(run_id).data.metrics == {}


def test_marks_and_locks_are_not_created_through_links(outbox, tmp_path):
    (outbox / ".full").symlink_to(tmp_path / "made")
    (outbox / "sweep.lock").symlink_to(tmp_path / "made")
    assert not Bound(outbox, 1).admits(2)
    with pytest.raises(OSError, match="symbolic link"), exclusive_lock(outbox, "sweep"):
        pass
    assert not (tmp_path / "made").exists()


WRONG = [
    {"m": {"loss": 1.0}},
    {"t": 1, "s": 0, "m": {"loss": "x"}},
    {"t": 1, "s": 0, "m": [1]},
    {"t": "x", "s": 0, "m": {"loss": 1.0}},
    {"tags": {"a": {"b": 1}}},
    {"tags": 5},
    {"end": "RUNNING", "t": 1},
    {"end": "FINISHED"},
    {"attempt": 0},
    {"sent": "all"},
    {"dataset": {"name": "a", "digest": "x" * 37, "profile": {}, "context": "train"}},
    {"run": "rm -rf"},
    {"run_id": "0" * 32},
]


@pytest.mark.parametrize("entry", WRONG, ids=map(str, WRONG))
def test_a_journal_with_an_invalid_line_is_not_sent(store, run_id, outbox, plant, entry):
    journal = plant({"t": 1, "s": 0, "m": {"loss": 1.0}}, entry)
    before = journal.read_bytes()
    reason = refusal(outbox, store, run_id)
    assert reason.startswith(("invalid journal line before byte", "the journal is of another run"))
    assert reason.isprintable()
    assert journal.read_bytes() == before
    assert store.get_run(run_id).data.metrics == {}


def test_every_line_of_a_recorder_is_valid_for_sync(store, run_id, outbox):
    recorder = Recorder(attach("http://127.0.0.1:9"), run_id, outbox=outbox)
    recorder.log({"loss/train": 1.0, "nfa/0": float("nan"), "best": float("inf")}, -3)
    recorder.tags({"a": 1, "b": None})
    recorder.params({"lr": 0.1})
    recorder.dataset("data", "d", {"n": 3, "shape": [1, 2]})
    recorder.discard("training")
    recorder.json("config", {"lr": 0.1})
    assert not recorder.close("KILLED", tags={"status": "killed"}, timeout=0.1)
    journal = Journal(outbox / f"{run_id}.jsonl")
    journal.append({"attempt": 2})
    journal.append({"sent": 10})
    journal.close()
    path = outbox / f"{run_id}.jsonl"
    path.write_text(path.read_text().replace("http://127.0.0.1:9", store.uri).replace('{"sent":10}\n', ""))
    assert sync(outbox, known=store.uri).sent == [run_id]
    assert store.get_run(run_id).data.metrics["loss/train"] == 1.0
