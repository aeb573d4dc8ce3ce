"""Links into MLflow's pages, saved views, and the server that serves them."""

from __future__ import annotations

import json
import re
import time
from urllib.parse import parse_qs, urlsplit

import pytest

from featurelab.tracking import pages
from featurelab.tracking.lines import masked
from featurelab.tracking.store.connect import attach


def query_of(link):
    route, _, query = link.partition("#")[2].partition("?")
    return route, {name: values[0] for name, values in parse_qs(query, strict_parsing=True).items()}


def test_every_link_opens_the_pages_of_model_training():
    links = [
        pages.charts_link("3", "night"),
        pages.charts_link("3"),
        pages.view_link("3", "sweep-1"),
        pages.table_link("3"),
        pages.table_link("3", pages.COLUMNS),
        pages.compare_link(["a", "b"], ["1", "2"]),
    ]
    for link in links:
        assert urlsplit(f"http://host{link}").query == "", "MLflow reads only what follows the #"
        assert query_of(link)[1]["workflowType"] == "machine_learning"
        assert masked(f"http://host{link}") == f"http://host{link}", "nothing in it is masked as a secret"


def test_a_link_to_charts_filters_by_the_sweep():
    route, query = query_of(pages.charts_link("3", "night-1.0"))
    assert route == "/experiments/3/runs"
    assert (query["searchFilter"], query["compareRunsMode"]) == ('tags.sweep="night-1.0"', "CHART")
    assert len(pages.charts_link("3", "night-1.0")) < 130


def test_the_filter_of_a_link_finds_the_runs_of_the_sweep(store):
    for sweep in ("night", "day"):
        store.start_run("system/figure", sweep, tags={"sweep": sweep})
    condition = query_of(pages.charts_link("1", "night"))[1]["searchFilter"]
    (run,) = store.client.search_runs([store.find_experiment("system/figure")], condition)
    assert run.info.run_name == "night"


def test_a_view_has_the_axes_and_the_ranking_metric_first(store):
    experiment = store.experiment_id("system/figure")
    metrics = ["loss/train", "loss/test", "nfa/0", "best.loss.test", "catapult"]
    options = {"lower_first": True, "metrics": metrics}
    key = pages.keep_view(store, experiment, "0" * 32, "night", ["lr", "width"], "loss/test", **options)
    tag = store.client.get_experiment(experiment).tags[pages.VIEW + key]
    assert len(tag) < 20_000, "MLflow's bound"
    envelope = json.loads(tag)
    assert envelope["name"] == "night"
    assert abs(envelope["createdAt"] / 1000 - time.time()) < 60
    state = json.loads(envelope["state"])
    (chart,) = state["compareRunCharts"]
    assert (chart["type"], chart["selectedParams"], chart["selectedMetrics"]) == (
        "PARALLEL",
        ["lr", "width"],
        ["loss/test"],
    )
    sections = [section["name"] for section in state["compareRunSections"]]
    assert sections == ["sweep", "loss", "nfa", "Model metrics"]
    assert chart["metricSectionId"] == state["compareRunSections"][0]["uuid"]
    assert (state["searchFilter"], state["orderByKey"], state["orderByAsc"]) == (
        'tags.sweep="night"',
        "metrics.`loss/test`",
        True,
    )


def test_only_our_oldest_views_are_deleted(store):
    experiment = store.experiment_id("system/figure")
    mine = pages.VIEW + "0123456789abcdef"
    store.client.set_experiment_tag(experiment, mine, "{}")
    for number in range(25):
        pages.keep_view(store, experiment, f"{number:032x}"[::-1], f"n{number}", ["lr"], "loss", lower_first=True)
    tags = store.client.get_experiment(experiment).tags
    assert mine in tags
    ours = [json.loads(value)["name"] for name, value in tags.items() if name.startswith(pages.VIEW + pages.OURS)]
    assert sorted(ours) == sorted(f"n{number}" for number in range(5, 25))
    again = pages.keep_view(store, experiment, f"{24:032x}"[::-1], "n24", ["lr"], "loss", lower_first=True)
    tags = store.client.get_experiment(experiment).tags
    assert len([name for name in tags if name.startswith(pages.VIEW + pages.OURS)]) == 20
    assert pages.VIEW + again in tags


def test_a_table_has_the_columns_that_were_saved_last(store):
    experiment = store.experiment_id("verdicts")
    assert pages.columns_of(store, experiment) == ""
    assert query_of(pages.table_link(experiment))[1]["startTime"] == "ALL"

    def saved(*metrics):
        pages.keep_columns(store, experiment, "counts", metrics, ["scale"])
        return store.client.get_experiment(experiment).tags[pages.VIEW + pages.COLUMNS]

    first = saved("claims/holds", "claims/fails")
    assert len(first) < 20_000, "MLflow's bound"
    state = json.loads(json.loads(first)["state"])
    assert state["selectedColumns"] == ["metrics.`claims/holds`", "metrics.`claims/fails`", "params.`scale`"]
    assert saved("claims/holds", "claims/fails") == first, "an unchanged view is not written again"
    assert saved("claims/holds") != first
    route, query = query_of(pages.table_link(experiment, pages.columns_of(store, experiment)))
    assert route == f"/experiments/{experiment}/runs"
    assert query == {"viewStateShareKey": pages.COLUMNS, "workflowType": "machine_learning"}


def test_a_description_is_replaced_unless_a_user_wrote_it(store):
    experiment = store.experiment_id("system/figure")

    def note():
        return store.client.get_experiment(experiment).tags[pages.NOTE]

    pages.describe(store, experiment, "Fig. 2 `featurelab reproduce`", "`featurelab")
    pages.describe(store, experiment, "Fig. 2, better: `featurelab reproduce`", "`featurelab")
    assert note() == "Fig. 2, better: `featurelab reproduce`"
    store.client.set_experiment_tag(experiment, pages.NOTE, "mine")
    pages.describe(store, experiment, "Fig. 2 `featurelab reproduce`", "`featurelab")
    assert note() == "mine"


def test_neighbouring_colours_differ():
    colours = [pages.colour(index) for index in range(200)]
    assert all(re.fullmatch("#[0-9a-f]{6}", colour) for colour in colours)
    assert len(set(colours)) == 200
    numbers = [[int(colour[i : i + 2], 16) for i in (1, 3, 5)] for colour in colours]
    for place, mine in enumerate(numbers):
        for other in numbers[max(0, place - 6) : place]:
            assert sum(abs(a - b) for a, b in zip(mine, other, strict=True)) > 40


def test_links_name_the_port_of_the_server_that_serves_this_store(server, store, monkeypatch):
    served = attach(f"sqlite:///{server.home / 'mlflow.db'}")
    run_id = served.start_run("system/figure", "run")
    monkeypatch.setattr(pages, "PORT", 9)
    assert pages.served(served, run_id) == "", "no port is noted"
    pages.serving(served, server.port)
    assert pages.served(served, run_id) == server.uri
    assert pages.served(served, "0" * 32) == "", "the run is not in the store that it serves"
    pages.serving(store, server.port)
    assert pages.served(store, store.start_run("system/figure", "run")) == ""
    pages.serving(served, None)
    assert pages.served(served, run_id) == ""
    monkeypatch.setattr(pages, "PORT", server.port)
    assert pages.served(served, run_id) == server.uri, "MLflow's default port is tried too"
    assert pages.served(attach(server.uri), run_id) == server.uri


@pytest.mark.parametrize("note", ["", "x", "99999999", "-1", "\x00"])
def test_an_invalid_note_of_a_port_is_ignored(store, note):
    pages.serving(store, 1)
    pages._note(store).write_text(note)
    assert pages.served(store, "0" * 32) == ""
