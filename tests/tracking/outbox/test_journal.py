from __future__ import annotations

import math
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlflow.entities import Metric, Run, RunData, RunInfo

from featurelab.tracking.outbox.delivery import Delivery
from featurelab.tracking.outbox.journal import Busy, Journal
from featurelab.tracking.outbox.summary import DIRECTION, Summary
from featurelab.tracking.store.store import Store

HEADER = {"uri": "sqlite:///x.db", "run_id": "r", "experiment": "system/figure"}
NAMES = st.sampled_from(["loss/train", "loss", "accuracy/test", "nfa/0", "error/é", "a b", "best.loss"])
ENTRIES = st.lists(
    st.fixed_dictionaries(
        {
            "t": st.integers(0, 2**53),
            "s": st.integers(-(2**63), 2**63 - 1),
            "m": st.dictionaries(NAMES, st.floats(allow_nan=False), min_size=1),
        }
    ),
    max_size=12,
)


class Sink:
    """Stands in for a server: stores each distinct point once, as MLflow does."""

    def __init__(self):
        self.points, self.tags, self.params, self.requests = {}, {}, {}, []
        self.store = Store("http://sink", self)

    def log_batch(self, run_id, metrics=(), params=(), tags=()):
        assert len(metrics) + len(tags) + len(params) <= 1000
        assert max(len(tags), len(params)) <= 100
        self.requests.append(len(metrics))
        self.tags |= {tag.key: tag.value for tag in tags}
        self.params |= {param.key: param.value for param in params}
        for m in metrics:
            self.points[m.key, m.step, m.timestamp, repr(m.value)] = m.value

    def get_metric_history(self, run_id, name):
        return [Metric(key, value, t, step) for (key, step, t, _), value in self.points.items() if key == name]

    def get_run(self, run_id):
        points = [Metric(key, value, t, step) for (key, step, t, _), value in self.points.items()]
        data = RunData(metrics=sorted(points, key=lambda m: (m.step, m.timestamp)))
        data.tags.update(self.tags)
        data.params.update(self.params)
        return Run(RunInfo(run_id, "0", "user", "RUNNING", 0, None, "active"), data)


def _write(path, entries):
    journal = Journal(path, header=HEADER)
    for entry in entries:
        journal.append(entry)
    journal.close()


@given(ENTRIES)
def test_a_journal_is_read_as_it_was_written(entries):
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "r.jsonl"
        _write(path, entries)
        journal = Journal(path)
        read = list(journal.lines())
        journal.close()
        assert [entry for _, entry in read] == [HEADER, *entries]
        assert [byte for byte, _ in read][-1] == path.stat().st_size


@given(ENTRIES, st.data())
def test_a_journal_cut_anywhere_keeps_every_whole_line_and_can_be_continued(entries, data):
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "r.jsonl"
        _write(path, entries)
        content = path.read_bytes()
        cut = content[: data.draw(st.integers(0, len(content)))]
        path.write_bytes(cut)
        ends = [byte for byte, letter in enumerate(content) if letter == ord("\n")]
        whole = [HEADER, *entries][: sum(end <= len(cut) for end in ends)]  # a line may lack its newline, no more
        journal = Journal(path, header=HEADER)
        journal.append({"end": "KILLED", "t": 1})
        after = [entry for _, entry in journal.lines()]
        journal.close()
        assert after == [*(whole or [HEADER]), {"end": "KILLED", "t": 1}]


@settings(max_examples=50)
@given(ENTRIES, st.integers(0, 12))
def test_a_delivery_in_two_parts_sends_each_point_once(entries, before):
    with tempfile.TemporaryDirectory() as directory:
        path, sink = Path(directory) / "r.jsonl", Sink()
        journal = Journal(path, header=HEADER)
        for part in (entries[:before], entries[before:]):
            for entry in part:
                journal.append(entry)
            delivery = Delivery(sink.store, journal, "r")
            while delivery.step():
                pass
        expected = Summary()
        for entry in entries:
            expected.add(entry)
        assert sum(sink.requests) == sum(len(entry["m"]) for entry in entries)
        assert delivery.summary == expected
        assert delivery.position == journal.size()
        journal.close()


def test_a_long_journal_is_sent_in_requests_within_mlflow_s_bounds(tmp_path):
    sink = Sink()
    journal = Journal(tmp_path / "r.jsonl", header=HEADER)
    for step in range(500):
        journal.append({"t": 1, "s": step, "m": {f"m{i}": 0.5 for i in range(7)}})
    journal.append({"t": 1, "s": 500, "m": {f"m{i}": 0.5 for i in range(2500)}})
    journal.append({"tags": {f"t{i}": i for i in range(250)}})
    journal.append({"params": {f"p{i}": i for i in range(150)}})
    delivery = Delivery(sink.store, journal, "r")
    while delivery.step():
        pass
    journal.close()
    assert sum(sink.requests) == len(sink.points) == 500 * 7 + 2500
    assert len(sink.requests) <= 12
    assert sink.tags == {f"t{i}": str(i) for i in range(250)}
    assert sink.params == {f"p{i}": str(i) for i in range(150)}


@given(ENTRIES)
def test_best_is_the_best_finite_value(entries):
    summary = Summary()
    for entry in entries:
        summary.add(entry)
    derived = {m.key: (m.value, m.step) for m in summary.metrics()}
    for name in {name for entry in entries for name in entry["m"]}:
        series = [(entry["m"][name], entry["s"]) for entry in entries if name in entry["m"]]
        finite = [value for value, _ in series if math.isfinite(value)]
        direction = DIRECTION.get(name.split("/")[0])
        if direction and finite:
            assert derived[f"best.{name}".replace("/", ".")] == (
                sorted(finite)[0 if direction is min else -1],
                series[-1][1],
            )
        else:
            assert f"best.{name}".replace("/", ".") not in derived


def test_a_journal_belongs_to_one_holder_at_a_time(tmp_path):
    journal = Journal(tmp_path / "r.jsonl", header=HEADER)
    with pytest.raises(Busy):
        Journal(tmp_path / "r.jsonl")
    journal.close()
    journal.delete()  # does nothing: the journal is closed
    assert (tmp_path / "r.jsonl").exists()
    second = Journal(tmp_path / "r.jsonl")
    second.delete()
    assert list(tmp_path.iterdir()) == []


def test_a_line_interrupted_by_a_signal_after_it_was_written_is_not_damaged(tmp_path, monkeypatch):
    journal, write = Journal(tmp_path / "r.jsonl", header=HEADER), os.write

    def interrupted(handle, content):
        write(handle, content)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        journal.append({"tags": {"a": "1"}})
    monkeypatch.undo()
    journal.append({"tags": {"b": "2"}})
    assert [entry for _, entry in journal.lines()][1:] == [{"tags": {"a": "1"}}, {"tags": {"b": "2"}}]
    assert journal.damaged is None
