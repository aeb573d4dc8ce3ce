"""Tags that MLflow's pages do not show are written and read by their plain names, also in earlier stores."""

import pytest
from mlflow.entities import RunTag

from featurelab.tracking.store import query
from featurelab.tracking.store.bookkeeping import HIDDEN, PREFIX
from featurelab.tracking.store.connect import attach
from featurelab.tracking.store.store import Store

SHOWN = {"system": "a", "experiment": "a/b", "figure": "Fig. 1", "scale": "laptop", "sweep": "s", "verdict": "1 holds"}


@pytest.fixture(params=["file", "server"])
def place(request: pytest.FixtureRequest) -> Store:
    if request.param == "file":
        return request.getfixturevalue("store")
    return attach(request.getfixturevalue("server").uri)


def start(store: Store, name: str, **tags: str) -> str:
    return store.start_run(f"bookkeeping/{name}", name, tags=tags)


def test_pages_show_no_bookkeeping_tags(place: Store) -> None:
    run_id = start(place, "shown", **SHOWN, **dict.fromkeys(HIDDEN, "x"))
    place.set_tags(run_id, {"seen": "y"})
    raw = place.client.get_run(run_id).data.tags
    assert {name: value for name, value in raw.items() if not name.startswith("mlflow.")} == SHOWN
    assert raw[PREFIX + "seen"] == "y"


def test_hidden_tags_are_read_by_their_plain_names(place: Store) -> None:
    run_id = start(place, "read", driver="me", seen="1", sweep="s")
    place.set_tags(run_id, {"seen": "2"})
    expected = {"driver": "me", "seen": "2", "sweep": "s"}
    (named,) = query.named(place, [run_id])
    for tags in (place.get_run(run_id).data.tags, named.data.tags):
        assert {name: value for name, value in tags.items() if not name.startswith("mlflow.")} == expected
    (row,) = query.rows(place, "bookkeeping/read")
    assert {name: row[f"tags.{name}"] for name in expected} == expected
    assert not [name for name in row if name.startswith("tags.mlflow.")]


def test_runs_of_an_earlier_version_are_found_and_read(place: Store) -> None:
    new, old, other = (start(place, "found", **tags) for tags in ({"driver": "me"}, {}, {"driver": "you"}))
    raw = place.client._tracking_client.store
    raw.set_tag(old, RunTag("driver", "me"))
    raw.set_tag(old, RunTag("seen", "1"))
    assert {row["run_id"] for row in query.rows(place, "bookkeeping/found", tags={"driver": "me"})} == {new, old}
    assert place.get_run(old).data.tags["seen"] == "1"
    place.set_tags(old, {"seen": "2", "driver": "you"})
    assert (place.get_run(old).data.tags["seen"], place.get_run(old).data.tags["driver"]) == ("2", "you")
    (row,) = [row for row in query.rows(place, "bookkeeping/found") if row["run_id"] == old]
    assert (row["tags.seen"], row["tags.driver"]) == ("2", "you")
    run_ids = {row["run_id"] for row in query.rows(place, "bookkeeping/found", tags={"driver": "you"})}
    assert run_ids == {old, other}


def test_no_other_tag_can_replace_a_plain_one(store: Store) -> None:
    run_id = start(store, "forged", status="finished")
    store.client._tracking_client.store.set_tag(run_id, RunTag(f"{PREFIX}status", "forged"))
    assert store.get_run(run_id).data.tags["status"] == "finished"
    (row,) = query.rows(store, "bookkeeping/forged")
    assert row["tags.status"] == "finished"
