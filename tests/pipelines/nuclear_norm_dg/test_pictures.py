"""The figures on pictures: settings drawn as in DomainBed, what is selected, and the tables made of it."""

import numpy as np
import pandas as pd
import pytest
import torch
from publicfiles import write_public
from tinyencoders import narrow_mobilenet

from featurelab.modules import data, nets
from featurelab.pipelines.engine.errors import Missing, RequestError
from featurelab.pipelines.engine.experiment.needs import require_data
from featurelab.pipelines.engine.experiment.results import Results
from featurelab.pipelines.engine.verdict.check import performed, recorded
from featurelab.pipelines.nuclear_norm_dg import algorithms, held_out, picture_tables, pictures, tuning

TINY = pictures.LAPTOP.but(steps=4, start_step=1, measure_every=2, average_every=2, width=8, batch_size=4, strength=1.0)


def made_up(values):
    """Results in which each trial, a dict of settings, has these accuracies in and out of domain."""
    rows = [{"run_id": str(i), "status": "finished", **settings} for i, (settings, _) in enumerate(values)]
    points = [
        (str(i), f"selected_accuracy/{part}", 1, value)
        for i, (_, pair) in enumerate(values)
        for part, value in zip(("id", "ood"), pair, strict=True)
    ]
    points = pd.DataFrame(points, columns=["run_id", "metric", "step", "value"])
    return Results(pd.DataFrame(rows, dtype=object), lambda metric: points[points.metric == metric], lambda *_: {})


def test_draws_are_in_the_ranges_of_the_program_from_the_same_numbers_for_every_algorithm():
    paper = pictures.PAPER
    assert paper.drawn() == paper
    same = {"lr": (1e-5, 10**-3.5), "weight_decay": (1e-6, 1e-2)}
    cases = {
        ("erm", "none"): {"batch_size": (8, 2**5.5)},
        ("swad", "nuclear"): {"strength": (10**-2.5, 10**-1.5), "batch_size": (32, 64)},
        ("swad", "coral"): {"strength": (0.1, 10.0), "batch_size": (8, 2**5.5)},
        ("mixup", "none"): {"mix": (0.1, 10.0)},
    }
    for (algorithm, penalty), ends in cases.items():
        own = paper.but(algorithm=algorithm, penalty=penalty)
        drawn = [own.but(draw=draw, seed=seed).drawn() for draw in range(1, 30) for seed in range(3)]
        for name, (low, high) in (same | ends).items():
            values = [getattr(config, name) for config in drawn]
            assert low * 0.999 <= min(values) < low * 1.5
            assert high / 1.5 < max(values) <= high * 1.02, "batches are whole numbers"
        plain = [paper.but(draw=draw, seed=seed).drawn() for draw in range(1, 30) for seed in range(3)]
        assert [[getattr(config, name) for name in same] for config in drawn] == [
            [getattr(config, name) for name in same] for config in plain
        ]


def test_penalties_have_the_strength_and_start_of_the_program_unless_they_are_given():
    paper = pictures.PAPER
    assert held_out.penalised(paper.but(penalty="nuclear")) == (0.01, 101)
    assert held_out.penalised(paper.but(penalty="coral")) == (1.0, 0)
    assert held_out.penalised(paper.but(penalty="none", strength=3.0))[0] == 0.0
    assert held_out.penalised(paper.but(penalty="coral", strength=0.5, start_step=7)) == (0.5, 7)


def test_every_method_is_tuned_over_as_many_values_and_selected_in_domain_alone():
    rows = {**algorithms.ROWS, **picture_tables.ROWS}
    cells = tuning.tried(rows)
    counts = {row: [cell[:2] for cell in cells].count(row) for row in rows}
    assert set(counts.values()) == {3}
    assert len(set(cells)) == len(cells)
    one = {"algorithm": "erm", "penalty": "nuclear", "dataset": "digits", "held_out": 0}
    values = [
        (one | {"seed": seed, "strength": strength}, pair)
        for seed, pairs in enumerate([[(0.5, 0.9), (0.7, 0.1)], [(0.6, 0.2), (0.6, 0.8)]])
        for strength, pair in zip((0.01, 0.1), pairs, strict=True)
    ]
    runs = made_up(values)
    by = "selected_accuracy/id"
    chosen = tuning.selected(runs, "erm", "nuclear", by)
    assert [some.trials.strength.iloc[0] for some in chosen] == [0.1, 0.01], "of equal ones the first"
    assert tuning.tuned(runs, "selected_accuracy/ood", "erm", "nuclear", by) == pytest.approx((0.1 + 0.2) / 2)


def test_settings_that_do_not_fit_the_dataset_are_refused():
    with pytest.raises(RequestError, match="pacs has 4 domains"):
        pictures.PAPER.but(held_out=4)
    with pytest.raises(RequestError, match="no_spurious needs dataset=digits"):
        pictures.PAPER.but(control="no_spurious")


@pytest.mark.parametrize("algorithm", ["erm", "mixup", "swad"])
def test_each_algorithm_trains_with_each_penalty(algorithm):
    tiny = TINY.but(algorithm=algorithm, measure_every=4)
    configs = [tiny.but(penalty=penalty) for penalty in ("none", "nuclear", "frobenius", "coral")]
    found = performed(pictures.figure, configs)
    last = recorded(found).query("metric == 'loss/ood' and step == 4").value
    assert len(set(last)) == 4


def test_the_step_with_the_best_validation_is_selected():
    found = performed(pictures.figure, [TINY.but(steps=12, measure_every=3)])
    taken = recorded(found).pivot_table(index="step", columns="metric", values="value")
    step = taken["accuracy/id"].idxmax()
    assert found.final("selected_step") == step
    for name in ("accuracy/id", "accuracy/ood", "loss/ood"):
        assert found.final(f"selected_{name}") == taken[name][step]


def test_scores_are_those_of_one_picture_after_another():
    task, net = held_out.pictures(TINY), held_out.network(TINY).eval()
    y = task.labels["validation"]
    with torch.no_grad():
        outputs = [net(task.inputs(x[None]))[0] for x in task.pictures("validation")]
    loss = np.mean([torch.nn.functional.cross_entropy(f, label).item() for f, label in zip(outputs, y, strict=True)])
    right = np.mean([f.argmax().item() == label.item() for f, label in zip(outputs, y, strict=True)])
    for chunk in (31, 256):
        found = held_out.scores(net, task, "validation", chunk=chunk)
        assert found["loss"].item() == pytest.approx(loss, rel=1e-5)
        assert found["accuracy"].item() == right


def test_without_spurious_colours_no_domain_has_any():
    shares = []
    for control in ("none", "no_spurious"):
        task = held_out.pictures(TINY.but(control=control, held_out=3))
        x, y = task.pictures("train"), task.labels["train"]
        hottest = x.flatten(2).float().mean(2).argmax(1)  # red, green or blue
        shares.append(np.std([hottest[y == label].float().mean().item() for label in range(10)]))
    assert shares[1] < 0.3 * shares[0]


def test_the_draw_with_the_best_validation_counts_on_each_domain_by_itself():
    same = {"algorithm": "erm", "penalty": "none", "dataset": "pacs", "seed": 0}
    values = [
        (same | {"held_out": 0, "draw": 0}, (0.9, 0.3)),
        (same | {"held_out": 0, "draw": 1}, (0.8, 0.6)),
        (same | {"held_out": 1, "draw": 0}, (0.7, 0.4)),
        (same | {"held_out": 1, "draw": 1}, (0.8, 0.2)),
    ]
    assert picture_tables.chosen(made_up(values), "ood", "erm", "none").tolist() == [0.3, 0.2]


def test_tables_have_means_and_standard_errors_over_trials_and_an_average():
    rng = np.random.default_rng(0)
    same = {"algorithm": "erm", "penalty": "none", "dataset": "pacs", "draw": 0}
    out = rng.random((3, 4))
    values = [(same | {"held_out": d, "seed": s}, (0.5, out[s, d])) for s in range(3) for d in range(4)]
    columns, rows = picture_tables.layout(made_up(values))
    assert columns == ["A", "C", "P", "S", "avg"]
    assert rows["ERM"] == pytest.approx(100 * np.column_stack([out, out.mean(1)]))
    expected = np.array([np.std(column, ddof=1) / 3**0.5 for column in out.T])
    assert picture_tables.standard_error(out) == pytest.approx(expected)
    assert picture_tables.printed_cell(["pacs"], "ERM-NU", "A") == "87.4 ± 0.5"
    assert picture_tables.printed_cell(["pacs", "vlcs"], "ERM-NU", "avg") == "65.0"
    assert picture_tables.printed_cell(["digits"], "ERM", "0.1") == ""


def test_tables_of_several_sets_have_a_column_each():
    same = {"algorithm": "erm", "penalty": "none", "draw": 0, "seed": 0}
    values = [
        (same | {"dataset": dataset, "held_out": place}, (0.5, 0.1 * place + (dataset == "domain_net")))
        for dataset, count in (("pacs", 4), ("domain_net", 6))
        for place in range(count)
    ]
    columns, rows = picture_tables.layout(made_up(values))
    assert columns == ["PACS", "DomainNet", "avg"]
    assert rows["ERM"][0] == pytest.approx([15.0, 125.0, 70.0])


def test_tables_of_benchmarks_are_not_judged_by_digits():
    small = pictures.vlcs.small_configs()[:2]
    found = performed(pictures.vlcs, small)
    for claim in pictures.vlcs.claims:
        with pytest.raises(Missing, match="no pictures of this set"):
            claim.measure(found)


def test_paper_trials_have_the_lengths_and_domains_of_each_set():
    configs = pictures.figure.configs("paper")
    cells = {(config.dataset, config.held_out) for config in configs}
    assert len(cells) == 22
    assert {config.steps for config in configs if config.dataset == "domain_net"} == {15_001}
    assert {config.steps for config in configs if config.dataset != "domain_net"} == {5001}
    assert {c.dataset for c in pictures.office_home.configs("paper")} == {"office_home"}
    for name, benchmark in held_out.BENCHMARKS.items():
        if name != "digits":
            source = data.dataset_source(name)
            assert (source.classes, len(source.domains)) == (benchmark.classes, len(benchmark.domains))
            assert sum(source.splits.values()) == benchmark.pictures


def test_on_a_desktop_the_end_of_a_mobilenet_is_trained_and_absent_files_are_named(tmp_path, monkeypatch):
    pytest.importorskip("transformers")
    datasets = pytest.importorskip("datasets")
    monkeypatch.setenv("FEATURELAB_DATA", str(tmp_path))
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    small = {"steps": 2, "edge": 32, "batch_size": 2, "start_step": 1, "measure_every": 1, "average_every": 1}
    preset = pictures.DESKTOP.but(frozen=13, **small)
    write_public(tmp_path, "pacs")
    with pytest.raises(RequestError, match=r"run `hf download google/mobilenet_v2_1\.0_224`"):
        require_data(pictures.pacs, [preset])
    folder = tmp_path / "models" / "mobilenet_v2_1.0_224"
    narrow_mobilenet(folder)
    require_data(pictures.pacs, [preset])
    rows = [("erm", "coral"), ("erm", "coral_nuclear"), ("swad", "nuclear")]
    found = performed(pictures.pacs, [preset.but(algorithm=a, penalty=p) for a, p in rows])
    last = recorded(found).query("metric == 'loss/ood' and step == 2").value
    assert len(set(last)) == len(rows)
    assert len(list((tmp_path / "cache" / "featurelab").iterdir())) == 4, "maps of each domain, for all trials"
    task, net = held_out.pictures(preset), held_out.network(preset)
    whole = nets.pretrained_mobilenet(folder)
    x = data.public_domains("pacs", 32)["sketch"][0].float() / 127.5 - 1
    with torch.no_grad():
        torch.testing.assert_close(
            net.features(task.inputs(task.pictures("test"))), whole.features(x), rtol=1e-2, atol=1e-3
        )
    assert all(parameter.requires_grad for parameter in net.parameters())


def test_a_desktop_has_every_row_with_draws_as_in_the_paper():
    here, paper = pictures.pacs.configs("desktop"), pictures.pacs.configs("paper")
    cells = {(c.held_out, c.draw, c.seed) for c in here}
    assert cells == {(c.held_out, c.draw, c.seed) for c in paper}
    rows = {(c.algorithm, c.penalty) for c in here}
    assert len(here) == len(cells) * len(rows)
    assert rows == {*picture_tables.ROWS, *picture_tables.CORAL} - {("erm", "frobenius")}
    drawn = pictures.DESKTOP.but(penalty="coral_nuclear", draw=1).drawn()
    assert drawn.strength == pictures.DESKTOP.but(penalty="nuclear", draw=1).drawn().strength


def test_a_benchmark_is_fine_tuned_with_its_statistics_fixed(tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setenv("FEATURELAB_DATA", str(tmp_path))
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(nets, "pretrained_resnet50", lambda classes, **o: nets.resnet50(classes, width=4, **o))
    write_public(tmp_path, "pacs")
    small = {"steps": 2, "edge": 32, "batch_size": 2, "start_step": 1, "measure_every": 1}
    found = performed(pictures.pacs, [pictures.PAPER.but(penalty="nuclear", held_out=2, **small)])
    assert found.final("selected_step") in (0, 1, 2)
    net = held_out.network(pictures.PAPER)
    assert any(isinstance(module, nets.FixedStatistics) for module in net.modules())
    scratch = performed(pictures.from_scratch, [pictures.SCRATCH.but(penalty="nuclear", **small | {"edge": 48})])
    assert 0 <= scratch.final("selected_accuracy/ood") <= 1
