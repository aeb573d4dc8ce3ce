"""Figures 4 and N.1-N.17 and Tables 1, 3, 4: what trials record, and one step at the paper's widths."""

import math

import numpy as np
import pytest
import torch
from publicfiles import write_public
from smallsizes import on_three_seeds
from tinyencoders import narrow_mobilenet

from featurelab.modules import data, measures, nets
from featurelab.pipelines.alignment_elasticity import metric_learning, ranking, tables
from featurelab.pipelines.engine.errors import Missing, RequestError
from featurelab.pipelines.engine.experiment.needs import require_data
from featurelab.pipelines.engine.verdict.check import performed


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """CARS196, CUB200, CIFAR-100 and GTSRB as parquet files, their pictures noise; and the folder of files."""
    datasets = pytest.importorskip("datasets")
    root = tmp_path_factory.mktemp("public")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEATURELAB_DATA", str(root))
        patch.setattr(datasets.config, "HF_DATASETS_CACHE", str(root / "cache"))
        for name, train in {"cars196": 1, "cub200": 1, "cifar100": 2, "gtsrb": 2}.items():
            write_public(root, name, {"train": train, "test": 1})
        yield root


@pytest.fixture(scope="module")
def stand_ins():
    """One seed of metric learning on both stand-ins."""
    figure = metric_learning.figure
    return performed(figure, [config for config in figure.small_configs() if config.seed == 0])


def test_a_ranking_follows_the_scores_of_both_evaluation_sets():
    # among three classes, three rankings may disagree as much as is possible, which is W = 0
    results = performed(ranking.figure, [ranking.figure.small_configs()[0].but(unseen=4)])
    for name in ("digits", "fields"):
        curve = results.curve(f"kendalls_w/{name}")
        assert list(curve.index) == [1, 2, 3, 4]
        assert ((curve > 0) & (curve <= 1)).all()
        assert results.at(f"elasticity/{name}/0", 0) == 0
        assert results.final(f"elasticity/{name}/0") > 0


def test_the_agreement_without_updates_is_that_of_the_untrained_control():
    config = ranking.figure.small_configs()[0]
    own, control = (performed(ranking.figure, [c]) for c in (config, config.but(control="untrained")))
    for name in ("digits", "fields"):
        withheld = ranking.middle(control, f"kendalls_w/{name}")
        assert own.final(f"kendalls_w_untrained/{name}") == pytest.approx(withheld)


def test_mid_training_is_epochs_6_to_15_of_20():
    assert [epoch for epoch in range(21) if ranking.in_the_middle(epoch, 20)] == list(range(6, 16))


def test_unseen_classes_depend_on_the_seed_alone():
    configs = [ranking.LAPTOP.but(seed=1, width=w, lr=lr) for w, lr in ((16, 1e-3), (32, 1e-2))]
    one, other = (ranking.two_classes(config) for config in configs)
    assert one.digest() == other.digest()
    assert one.classes == other.classes
    assert ranking.two_classes(configs[0].but(seed=2)).classes != one.classes


def test_an_odd_number_of_training_images_is_refused():
    with pytest.raises(RequestError, match="n_train"):
        ranking.LAPTOP.but(n_train=97)


def test_one_epoch_of_the_ranking_at_the_paper_s_widths(images):
    trained = "cub200"
    config = ranking.figure.paper.but(train_set=trained, n_train=4, unseen=3, epochs=1, permutations=2, size=32)
    assert (config.trunk, config.dim, config.width, ranking.figure.paper.size) == ("resnet18", 2048, 2048, 224)
    results = performed(ranking.figure, [config])
    for name in ("cars196", "cub200"):
        assert 0 <= results.final(f"kendalls_w/{name}") <= 1
        assert results.final(f"elasticity/{name}/2") > 0
        kept = results.arrays("classes")[0]
        half = {"cars196": 98, "cub200": 100}[name]
        assert (kept[name] >= half).all()  # the second half of the classes is for evaluation
        assert len(kept[name]) == 3
    assert (kept["train"] < 100).all()


def test_on_a_desktop_the_ranking_is_the_paper_s_on_other_images(images):
    desktop, paper = ranking.figure.desktop, ranking.figure.paper
    assert desktop == paper.but(train_set="cifar100", size=32)
    small = {"dim": 16, "width": 16, "permutations": 2, "size": 32}
    config = desktop.but(train_set="gtsrb", n_train=4, unseen=3, epochs=1, **small)
    results = performed(ranking.figure, [config])
    for name in ("cifar100", "gtsrb"):
        assert 0 <= results.final(f"kendalls_w/{name}") <= 1
    kept = results.arrays("classes")[0]
    assert (kept["gtsrb"] >= 21).all(), "the second half of 43 classes is for evaluation"
    assert (kept["cifar100"] >= 50).all()
    assert (kept["train"] < 21).all()


def test_images_of_unseen_classes_keep_their_labels_when_those_of_training_are_permuted(images):
    config = ranking.figure.desktop.but(n_train=4, unseen=3, size=32)
    task = ranking.two_classes(config)
    with data.permuted_labels(3):
        permuted = ranking.two_classes(config)
    assert permuted.classes == task.classes
    for name, (x, y) in task.evaluation.items():
        assert torch.equal(x, permuted.evaluation[name][0]), name
        assert torch.equal(y, permuted.evaluation[name][1]), name


def test_on_a_desktop_the_upper_layers_of_a_mobilenet_learn_the_metric(images):
    config = metric_learning.figure.desktop.but(dataset="gtsrb", kept=3, size=32, width=256, batch_size=4, epochs=1)
    config = config.but(per_class=2)
    with pytest.raises(RequestError, match=r"run `hf download google/mobilenet_v2_1\.0_224`"):
        require_data(metric_learning.figure, [config])
    narrow_mobilenet(images / "models" / "mobilenet_v2_1.0_224")
    require_data(metric_learning.figure, [config])
    results = performed(metric_learning.figure, [config])
    assert results.arrays("classes")[0]["recall"].shape == (21,)
    assert results.final("alignment/unseen") != results.at("alignment/unseen", 0), "the upper layers are trained"
    assert results.final("alignment/unseen") <= 256
    # frozen layers and those above them make up the published network
    maps, _ = metric_learning.small_images(config)
    whole = metric_learning.mobilenet(config)
    images = data.public_pictures("gtsrb", 32, seed=config.split)
    first = torch.cat([images.labelled[0], images.test[0]])[torch.cat([images.labelled[1], images.test[1]]) == 0][:3]
    upper = metric_learning.backbone(config)
    torch.testing.assert_close(upper(maps[:3]), whole.features(first / 127.5 - 1), rtol=1e-3, atol=1e-4)


def test_the_convolutional_network_learns_the_metric_of_photographs_too(images):
    config = metric_learning.LAPTOP.but(dataset="cifar100", kept=2, width=8, epochs=1)
    results = performed(metric_learning.figure, [config])
    assert results.arrays("classes")[0]["recall"].shape == (50,)
    with pytest.raises(Missing, match="CARS196"):
        metric_learning.public(results)


def test_metric_learning_records_what_its_figure_is_about(stand_ins):
    for dataset in ("digits", "fields"):
        chosen = stand_ins.where(dataset=dataset)
        recalls = [chosen.final(f"recall_at_{k}/unseen") for k in (1, 2, 4, 8)]
        assert recalls == sorted(recalls)
        assert len(chosen.curve("alignment/unseen")) == 3  # before, and after each of two epochs
        kept = chosen.arrays("classes")[0]
        assert kept["recall"].shape == kept["alignment"].shape == (40,)
        r = chosen.final("pearson/recall_alignment")
        assert np.corrcoef(kept["recall"], kept["alignment"])[0, 1] == pytest.approx(r, abs=1e-5)
        assert chosen.final("pearson_p/recall_alignment") == pytest.approx(float(measures.pearson_p_value(r, 40)))


def test_all_seeds_share_one_split_of_classes():
    one, other = (metric_learning.unseen_half(metric_learning.LAPTOP.but(seed=s))[0] for s in (0, 1))
    assert one.digest() == other.digest()
    assert one.test_classes != metric_learning.unseen_half(metric_learning.LAPTOP.but(split=1))[0].test_classes


def test_balanced_batches_work_on_stand_ins_too():
    config = metric_learning.LAPTOP.but(epochs=1, width=8, batch_size=40, per_class=10)
    results = performed(metric_learning.figure, [config])
    assert 0 < results.final("recall_at_1/unseen") < 1


def test_one_epoch_of_metric_learning_at_the_paper_s_widths(images, monkeypatch):
    monkeypatch.setattr(nets, "pretrained_resnet50", lambda **options: nets.resnet50(1000, seed=0, **options))
    for config in metric_learning.figure.configs("paper"):
        assert (config.width, config.batch_size, config.per_class, config.epochs) == (2048, 75, 25, 30)
        assert {"cars196": 0.01, "cub200": 0.001}[config.dataset] == config.lr
    config = metric_learning.figure.paper
    results = performed(metric_learning.figure, [config.but(epochs=1, size=32, workers=0)])
    assert 0 <= results.final("recall_at_1/unseen") <= 1
    assert -2048 <= results.final("alignment/unseen") <= 2048
    assert results.arrays("classes")[0]["recall"].shape == (98,)


def test_another_width_puts_a_linear_layer_on_the_pretrained_network(monkeypatch):
    monkeypatch.setattr(nets, "pretrained_resnet50", lambda **options: nets.resnet50(1000, seed=0, **options))
    trunk = metric_learning.backbone(metric_learning.figure.paper.but(width=64))
    assert trunk.head.weight.shape == (64, 2048)


def test_claims_about_printed_numbers_are_judged_on_the_paper_s_datasets():
    """On made-up results of CARS196 and CUB200 the claims that stand-ins cannot test are tested."""
    from madeup import results, seed_by_seed

    printed = {
        name: {
            "pearson/recall_alignment": v["r"],
            "recall_at_1/unseen": v["recall"],
            "alignment/unseen": v["alignment"],
        }
        for name, v in metric_learning.PRINTED.items()
    }
    made_up = results(
        [config.model_dump() for config in metric_learning.figure.configs("paper")],
        lambda config: {metric: {0: 0.0, 30: value} for metric, value in printed[config["dataset"]].items()},
    )
    judged = {
        c.id: seed_by_seed(c).judge(made_up) for c in metric_learning.figure.claims if c.documented() == "untested"
    }
    assert {verdict.status for verdict in judged.values()} == {"holds"}
    assert judged["c27_correlation_as_printed"].measured == 0


def test_printed_tables_are_recomputed():
    results = performed(tables.figure, on_three_seeds(tables.figure))
    for claim in tables.figure.claims:
        if claim.origin == "paper":
            assert claim.judge(results).status == "holds", claim.id
    # Fisher's statistic by hand, from the printed p-values: those of r have more digits
    for table, expected in (("cars196", 34.615), ("cub200", 45.353)):
        printed = -2 * sum(math.log(p) for p in tables.ROWS[table]["p"])
        assert printed == pytest.approx(expected, abs=1e-3)
        assert results.final("fisher/statistic", table=table) == pytest.approx(printed, abs=0.3)


def test_the_printed_rows_are_whole():
    for rows in tables.ROWS.values():
        assert {name: len(column) for name, column in rows.items()} == dict.fromkeys(tables.COLUMNS, 6) | {"p": 4}
        recalls = np.array([rows[f"Recall@{k}"][:5] for k in (1, 2, 4, 8)])
        assert (np.diff(recalls, axis=0) > 0).all()


def test_claims_about_public_images_say_what_is_missing(stand_ins):
    untested = [claim for claim in metric_learning.figure.claims if claim.documented() == "untested"]
    assert len(untested) == 2
    for claim in untested:
        with pytest.raises(Missing, match="stand-ins"):
            claim.measure(stand_ins)
