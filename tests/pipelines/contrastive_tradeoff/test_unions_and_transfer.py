"""Pre-training on unions, what is measured of a network, and the figures made of it."""

import math

import numpy as np
import pandas as pd
import pytest
import torch

from featurelab.modules import data, learners, nets
from featurelab.pipelines.contrastive_tradeoff.pretrained import (
    diversity,
    methods,
    pretraining,
    real_pictures,
    regularised,
    similarity,
    transfer,
    unions,
)
from featurelab.pipelines.contrastive_tradeoff.pretrained.unions import NETWORKS, Unions
from featurelab.pipelines.engine.errors import Missing, RequestError
from featurelab.pipelines.engine.experiment.printed import printed_table
from featurelab.pipelines.engine.experiment.results import Results
from featurelab.pipelines.engine.verdict.check import performed

TINY = unions.figure.laptop.but(**unions.TINY, device="cpu")


def made_up(rows, arrays=None, step=(0,)):
    """Results of trials, each a dict of settings with a dict of values, the same at each step."""
    same = {"length": "own", "repeat": 0, "seed": 0, "labels": (20, 1000), "tune": True, "tune_labels": (50, 200)}
    trials = [{"run_id": str(i), "status": "finished", **same, **settings} for i, (settings, _) in enumerate(rows)]
    points = [
        (str(i), name, at, value) for i, (_, values) in enumerate(rows) for name, value in values.items() for at in step
    ]
    table = pd.DataFrame(points, columns=["run_id", "metric", "step", "value"])
    return Results(
        pd.DataFrame(trials, dtype=object),
        lambda metric: table[table.metric == metric],
        lambda run_id, _: arrays[int(run_id)],
    )


def trade_off(few, many, average, **beside):
    rows = [
        ({"union": union}, {"target/20": a, "target/1000": b, "average": c})
        for union, a, b, c in zip(unions.UNIONS, few, many, average, strict=True)
    ]
    for (union, length), values in beside.get("beside", {}).items():
        rows.append(({"union": union, "length": length}, values))
    return made_up(rows)


def test_a_union_has_the_pictures_of_its_sets_and_each_noise_is_another():
    config = TINY.but(union="digits+noise+noise", share=0.5)
    x, place = pretraining.union_of(config).train
    assert torch.bincount(place).tolist() == [20, 40, 40]
    assert not torch.equal(x[20:60], x[60:])
    alone = pretraining.pictures(config, "digits").train[0]
    assert torch.equal(x[:20], alone[:20])
    few = pretraining.union_of(TINY.but(union="digits+gratings", classes=2))
    assert len(few.train[0]) == 80


def test_noise_stands_for_the_sets_that_the_union_adds():
    def imitated(union, config=TINY):
        config = config.but(union=union)
        return [pretraining.imitated(config, place) for place, name in enumerate(config.sets) if name == "noise"]

    assert imitated("digits+noise+noise+noise") == [["shapes"], ["gratings"], ["photos"]]
    assert imitated("turned+noise+noise+noise") == [["shapes"], ["gratings"], ["photos"]]
    assert imitated("cinic10+noise", unions.PAPER) == [["svhn", "gtsrb", "imagenet32"]]
    assert imitated("digits+noise", TINY.but(tasks="digits")) == [["digits"]]
    assert pretraining.imitated(TINY, 0) == ["digits"]


def test_noise_has_the_mean_and_covariance_of_the_pictures_for_which_it_stands():
    config = TINY.but(union="digits+noise+noise+noise", n_train=1500)
    for place, name in enumerate(("shapes", "gratings", "photos"), start=1):
        x, z = (
            pretraining.pictures(config, kind, place=at).train[0].flatten(1).double()
            for kind, at in ((name, 0), ("noise", place))
        )
        assert len(z) == 1500
        spread = (z.mean(0) - x.mean(0)) / x.std(0)
        assert spread.abs().max() < 5 * 1500**-0.5
        scale = x.std(0)[:, None] * x.std(0)
        assert ((torch.cov(z.T) - torch.cov(x.T)) / scale).abs().max() < 5 * (2 / 1500) ** 0.5


@pytest.mark.parametrize(
    ("length", "passes"), [("own", 160), ("longest", 160), ("shortest", 40), ("early", 5), ("none", 0)]
)
def test_updates_are_those_of_the_pictures_they_are_said_to_be_of(length, passes):
    config = TINY.but(union=NETWORKS["DSGN"].union, length=length, epochs=3)
    expected = 3 * math.ceil(passes / config.batch_size) if passes else 1
    assert pretraining.updates(config, 160) == expected
    learned = []
    seen = pretraining.pretrained(
        config, type("Nothing", (Silent,), {"log": lambda _, v, step: learned.append(step)})()
    )
    assert learned == [expected]
    same = torch.equal(next(seen.parameters()), next(pretraining.siamese(config).parameters()))
    assert same == (length == "none")


class Silent:
    """A recorder that keeps nothing."""

    def __getattr__(self, name):
        return lambda *_, **__: None


@pytest.mark.parametrize(
    ("union", "length", "pictures"),
    [("digits", "longest", 20 + 3 * 40), ("digits", "shortest", 20), ("turned", "longest", 20 + 3 * 40)],
)
def test_equal_updates_count_what_is_trained_on_of_the_first_set(union, length, pictures):
    config = TINY.but(union=union, length=length, share=0.5, epochs=3)
    assert pretraining.updates(config, 20) == 3 * math.ceil(pictures / config.batch_size)
    whole = pretraining.union_of(config.but(union=f"{union}+shapes+gratings+photos"))
    assert len(whole.train[0]) == 20 + 3 * 40


def test_a_set_that_is_no_task_stands_in_for_the_first_one():
    config = unions.PAPER.but(union="cifar10+noise", length="longest", share=0.2)
    others = 73_257 + 107_500 + 500_000
    assert pretraining.added(config) == ["svhn", "gtsrb", "imagenet32"] == pretraining.added(unions.PAPER)
    assert pretraining.size(config.but(n_train=10**6), "noise") == others
    assert pretraining.updates(config, 0) == 800 * math.ceil((10_000 + others) / 512)
    cells = dict.fromkeys((c.union, c.length) for c in diversity.nearest.configs("paper"))
    assert list(cells)[-3:] == [
        ("cifar10+noise", "own"),
        ("cifar10", "longest"),
        ("cifar10+svhn+gtsrb+imagenet32", "shortest"),
    ]


@pytest.mark.parametrize(
    "figure",
    [
        diversity.share,
        diversity.nearest,
        methods.figure,
        real_pictures.mnist,
        real_pictures.fer2013,
        real_pictures.real,
        unions.figure,
    ],
)
@pytest.mark.parametrize("scale", ["laptop", "paper"])
def test_every_trade_off_stands_beside_equal_updates_and_as_much_noise(figure, scale):
    found = {(c.target, c.method, c.share, c.union, c.length) for c in figure.configs(scale)}
    for *where, union, _ in [cell for cell in found if cell[-1] == "longest"]:
        grown = {other for *there, other, length in found if there == where and length == "own"}
        whole = max((u for u in grown if u.startswith(f"{union}+") and "noise" not in u), key=lambda u: u.count("+"))
        assert {union, whole} <= grown
        assert any(u.startswith(f"{union}+noise") for u in grown)
        assert (*where, whole, "shortest") in found
    compared = {tuple(where) for *where, _, length in found if length == "longest"}
    assert compared == {tuple(where) for *where, _, _ in found}


def test_settings_that_cannot_be_are_refused():
    with pytest.raises(RequestError, match="is no set"):
        TINY.but(union="digits+cats")
    with pytest.raises(RequestError, match="cannot be joined"):
        TINY.but(union="digits+svhn")


@pytest.mark.parametrize("method", list(pretraining.METHODS))
@pytest.mark.parametrize("net", ["mlp", "small"])
def test_each_method_trains_each_network(method, net):
    config = TINY.but(method=method, net=net, queue=30)
    found = performed(unions.figure, [config])
    assert 0 <= found.final("target/20") <= 1
    learner = pretraining.contrast(config, pretraining.siamese(config), 0.1, 2)
    kinds = {"nt_xent": learners.NTXent, "moco": learners.MoCo, "simsiam": learners.SimSiam, "nnclr": learners.NNCLR}
    assert type(learner) is kinds[method]


def test_the_paper_s_network_is_a_resnet_with_512_features_and_its_schedule():
    config = unions.PAPER
    net = pretraining.siamese(config)
    assert sum(p.numel() for p in net.encoder.parameters()) > 11e6
    learner = pretraining.contrast(config, net, config.lr, config.epochs)
    group = learner.configure_optimizers().param_groups[0]
    assert (group["lr"], group["momentum"], group["weight_decay"]) == (0.06, 0.9, 5e-4)
    assert learner.queue.rows.shape == (4096, 512)
    assert pretraining.updates(config, 90_000) == 800 * 176
    assert pretraining.size(config.but(union="cinic10+noise"), "noise") == 500_000


def test_shuffled_pairs_share_nothing_and_labels_are_permuted_for_the_probe():
    assert pretraining.views(TINY.but(control="shuffled_pairs")).shuffled
    with data.permuted_labels(1):
        permuted = pretraining.pictures(TINY, "digits")
    plain = pretraining.pictures(TINY, "digits")
    assert torch.equal(permuted.train[0], plain.train[0])
    assert not torch.equal(permuted.train[1], plain.train[1])


def test_labelled_pictures_are_in_turn_of_each_class_and_drawn_as_often_as_asked():
    config = TINY.but(draws=3, n_train=100)
    task = pretraining.pictures(config, "digits")
    drawn = transfer.drawn(config, task, 20)
    assert len(drawn) == 3
    assert all(torch.bincount(task.train[1][rows]).tolist() == [2] * 10 for rows in drawn)
    assert len({tuple(rows.tolist()) for rows in drawn}) == 3
    assert len(transfer.drawn(config, task, 100)) == 1


def test_a_probe_knows_what_features_tell():
    config = TINY.but(draws=2, n_train=60)
    task = pretraining.pictures(config, "digits")
    told = [torch.nn.functional.one_hot(part[1], 10).float() for part in (task.train, task.test)]
    for probe in ("logistic", "sgd"):
        assert transfer.probed(config.but(probe=probe), task, told, 40) == 1.0


def test_fine_tuning_leaves_the_network_alone_and_is_that_of_its_way():
    config = TINY.but(tune=True)
    net = pretraining.siamese(config)
    before = [p.detach().clone() for p in net.parameters()]
    values = transfer.tuned(config, net, pretraining.pictures(config, "digits"), Silent())
    assert {name.split("/")[1] for name in values} == {"lp", *transfer.TUNINGS}
    transfer.adapted(config, net, pretraining.pictures(config, "digits"), Silent())
    assert all(torch.equal(a, b) for a, b in zip(before, net.parameters(), strict=True))
    plain = transfer.classifier(config, net, 20, 0.0, "clean")
    with_contrast = transfer.classifier(config, net, 20, config.strength, "both")
    assert (plain.strength, plain.shown) == (0.0, "clean")
    assert (with_contrast.strength, with_contrast.shown) == (0.1, "both")
    assert with_contrast.contrast.temperature == 0.5
    assert isinstance(
        transfer.classifier(unions.PAPER, pretraining.siamese(unions.PAPER), 500, 0.1, "views").contrast, learners.MoCo
    )
    assert transfer.tune_steps(unions.PAPER, 50_000) == 200 * 196


def test_the_trade_off_is_read_from_the_first_union_to_the_last():
    beside = {
        (NETWORKS["noise"].union, "own"): {"target/20": 0.74, "target/1000": 0.9, "average": 0.7},
        ("digits", "longest"): {"target/20": 0.81, "target/1000": 0.93, "average": 0.65},
        (NETWORKS["DSGN"].union, "shortest"): {"target/20": 0.7, "target/1000": 0.88, "average": 0.7},
    }
    runs = trade_off((0.8, 0.78, 0.77, 0.7), (0.9, 0.9, 0.9, 0.88), (0.6, 0.7, 0.75, 0.8), beside=beside)
    assert Unions(runs).all == unions.UNIONS
    assert unions.trade_off(runs) == pytest.approx({"target falls": 0.1, "average rises": 0.2})
    assert unions.monotone(runs) == pytest.approx({"target": -1, "average": 1})
    assert unions.beyond_noise(runs) == pytest.approx(0.04)
    assert unions.beyond_length(runs) == pytest.approx({"as many": 0.11, "as few": 0.1})
    assert unions.beyond(runs) == pytest.approx({"noise": 0.04, "as many": 0.11, "as few": 0.1})
    assert unions.average_beyond(runs) == pytest.approx({"length": 0.15, "noise": 0.1})
    assert unions.larger_drop(runs) == pytest.approx(0.08)
    assert unions.larger_factor(runs) == pytest.approx(math.log(0.3 / 0.2) - math.log(0.12 / 0.1))
    assert unions.crossing(runs) == pytest.approx({"few": 0.1, "many": 0.02})


def test_a_seed_without_noise_is_left_out_of_claims_about_noise():
    """As further seeds are, which have only the trials of claims that are not decided yet."""
    with pytest.raises(Missing, match="noise"):
        unions.beyond_noise(trade_off((0.8, 0.78, 0.77, 0.7), (0.9, 0.9, 0.9, 0.88), (0.6, 0.7, 0.75, 0.8), beside={}))


def by(setting, figure, few):
    """Made-up results of a figure: 0.9 less the places of the union and of the setting's value, in hundredths."""
    values = list(dict.fromkeys(getattr(c, setting) for c in figure.configs("laptop")))
    cells = dict.fromkeys((c.union, c.length, getattr(c, setting)) for c in figure.configs("laptop"))
    return made_up(
        [
            (
                {"union": union, "length": length, setting: value},
                {few: 0.9 - 0.01 * n * (1 + values.index(value)), "target/1000": 0.95, "average": 0.5 + 0.01 * n},
            )
            for n, (union, length, value) in enumerate(cells)
        ]
    )


def test_a_share_of_the_nearest_set_is_judged_within_its_own_trials():
    runs = by("share", diversity.share, "target/20")
    assert diversity.half(runs) == pytest.approx(0.03)
    assert diversity.half_beyond(runs) == pytest.approx({"noise": -0.01, "as many": -0.02, "as few": 0.06})
    assert diversity.u_shape(runs) == pytest.approx({"falls": 0.03, "rises again": -0.03})


def test_methods_are_judged_each_within_its_own_trials():
    runs = by("method", methods.figure, "target/20")
    falls = {"MoCo v2": 0.01, "SimSiam": 0.02, "NNCLR": 0.03}
    assert methods.falls(runs) == pytest.approx(falls)
    assert methods.rises(runs) == pytest.approx(dict.fromkeys(falls, 0.01))
    assert methods.beyond_noise(runs) == pytest.approx({name: -fall for name, fall in falls.items()})
    found = methods.beyond_length(runs)
    assert [found[f"{name}, as many"] for name in falls] == pytest.approx([-2 * fall for fall in falls.values()])
    assert [found[f"{name}, as few"] for name in falls] == pytest.approx([4 * fall for fall in falls.values()])


def test_networks_are_compared_by_the_features_of_the_same_pictures():
    rng = np.random.default_rng(0)
    same = rng.standard_normal((30, 4))
    rows, arrays = [], []
    for name, network in similarity.compared(made_up([(NETWORKS["D"]._asdict(), {})])).items():
        rows.append((network._asdict(), {}))
        H = 2 * same @ np.linalg.qr(rng.standard_normal((4, 4)))[0] if name in ("D", "D'", "DSGN") else None
        arrays.append({"target": rng.standard_normal((30, 4)) if H is None else H})
    runs = made_up(rows, arrays)
    found = similarity.similarities(runs)
    assert found["D", "D'"] == pytest.approx(1) == found["D", "DSGN"]
    assert similarity.unlike(runs)["seeds"] == pytest.approx(1 - max(found["D", name] for name in similarity.SINGLE))
    assert similarity.beyond_noise(runs)["seeds"] == pytest.approx(0)
    assert similarity.decreasing(runs) == pytest.approx(found["D", "DS"] - 1)


def test_ways_of_fine_tuning_are_compared_cell_by_cell():
    values = {
        f"tuned/{way}/{n}": v
        for n, extra in ((50, 0.0), (200, 0.1))
        for way, v in {
            "lp": 0.7 + extra,
            "ft": 0.8 + extra,
            "cr": 0.82 + extra,
            "cr_others": 0.81 + extra,
            "ft_views": 0.85 + extra,
            "cr_views": 0.84 + extra,
        }.items()
    }
    runs = made_up([({"union": union}, values) for union in (unions.UNIONS[0], unions.UNIONS[-1])])
    assert regularised.over_ft(runs) == pytest.approx(0.02)
    assert regularised.over_ft_on_views(runs) == pytest.approx(-0.01)
    assert regularised.over_others(runs) == pytest.approx(0.01)
    assert regularised.over_probe(runs) == pytest.approx({"FT": 0.15, "CR": 0.14})


def test_gains_are_compared_at_a_start_that_is_no_better():
    rows = [
        ({"union": "digits"}, {"gain/target": 0.01, "gain/base": 0.8}),
        ({"union": "digits", "length": "early"}, {"gain/target": 0.03, "gain/base": 0.77}),
        (
            {"union": NETWORKS["DSGN"].union},
            {"gain/target": 0.02, "gain/shapes": 0.0, "gain/noise": -0.1, "gain/base": 0.76},
        ),
    ]
    runs = made_up(rows)
    assert regularised.diverse_gain(runs) == pytest.approx(0.01)
    assert regularised.matched_gain(runs) == pytest.approx({"gain": -0.01, "start": 0.01})
    assert regularised.target_gain(runs) == pytest.approx({"others": 0.02, "noise": 0.12})


def test_printed_tables_have_the_exceptions_that_are_known():
    rows = printed_table(unions.__file__, "table_f_5.csv")
    table = {
        method: np.array([list(row.values())[2:] for row in rows if row["method"] == method])
        for method in ("LP", "FT", "CR")
    }
    assert [int((table["CR"] > table[name]).sum()) for name in ("FT", "LP")] == [19, 19]
    drops = table["LP"][0] - table["LP"][-1]
    assert [drops[0], drops[-1]] == pytest.approx([12.37, 12.77])
    gains = [row["CR+LP"] - row["LP"] for row in printed_table(unions.__file__, "table_f_9.csv")]
    assert np.diff(gains).min() == pytest.approx(1.73 + 0.03)


def test_figures_that_share_networks_have_trials_of_the_same_sweep():
    known = set(unions.figure.configs("laptop"))
    for figure in (similarity.figure, regularised.figure, regularised.before_probe, regularised.picture):
        assert figure.reads is unions.figure
        assert set(figure.configs("laptop")) <= known
    assert methods.figure.reads is None
    assert {c.method for c in methods.figure.configs("paper")} == {"moco", "simsiam", "nnclr"}
    assert {c.share for c in diversity.share.configs("paper")} == {1.0, 0.5, 0.2}


def test_panels_of_public_sets_are_not_judged_by_digits():
    found = performed(real_pictures.mnist, real_pictures.mnist.small_configs()[:1])
    for figure in (real_pictures.mnist, real_pictures.fer2013, real_pictures.real):
        for claim in figure.claims:
            with pytest.raises(Missing, match="has none of these sets"):
                claim.measure(found)


def test_a_siamese_network_without_heads_is_its_encoder():
    net = nets.Siamese(nets.perceptron((4, 3), seed=0))
    x = torch.randn(5, 4, dtype=torch.float64)
    assert torch.equal(net(x), net.features(x))
    assert torch.equal(net.predict(net(x)), net(x))
