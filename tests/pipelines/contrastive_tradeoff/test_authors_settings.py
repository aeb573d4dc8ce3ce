"""Settings of the authors' program at paper scale, and sets of which a part is pre-trained on."""

from itertools import chain

import pytest
import torch
from test_unions_and_transfer import TINY, made_up

from featurelab.modules import data
from featurelab.pipelines.contrastive_tradeoff import unicl
from featurelab.pipelines.contrastive_tradeoff.pretrained import methods, pretraining, similarity, subsets, unions
from featurelab.pipelines.engine.errors import Missing, RequestError


def test_a_part_of_a_set_has_its_classes_numbered_anew():
    config = TINY.but(n_train=200, n_test=100)
    everything, part = (pretraining.pictures(config, name) for name in ("digits", "digits:7,2-3"))
    for (x, y), (own, labels) in ((everything.train, part.train), (everything.test, part.test)):
        for number, digit in enumerate((7, 2, 3)):
            assert torch.equal(own[labels == number], x[y == digit])
        assert len(own) == sum(int((y == digit).sum()) for digit in (7, 2, 3))
    assert (pretraining.classes_of("digits:7,2-3"), pretraining.size(config, "digits:7,2-3")) == (3, 60)
    for wrong in ("digits:8-12", "digits:a", "digits:3-1"):
        with pytest.raises(RequestError, match="must have classes from 0 to 9"):
            config.but(union=wrong)


def test_small_sets_have_as_many_classes_as_their_pictures():
    assert pretraining.SMALL == data.PICTURE_KINDS


def test_a_portion_of_the_pictures_is_pre_trained_on_in_fewer_updates():
    config = TINY.but(n_train=200, n_test=100, union="digits:0-3+digits:4-9")
    whole, tenth = (pretraining.union_of(config.but(portion=portion)).train for portion in (1.0, 0.1))
    assert (len(whole[0]), len(tenth[0])) == (200, 20)
    assert torch.bincount(tenth[1]).tolist() == [8, 12]


def test_permuted_labels_of_a_part_stay_within_its_pictures():
    config = TINY.but(n_train=200, n_test=100)
    plain = pretraining.pictures(config, "digits:0-3").train[0]
    with data.permuted_labels(0):
        permuted = pretraining.pictures(config, "digits:0-3").train
    assert torch.equal(permuted[0], plain)


def test_the_paper_s_methods_have_the_settings_of_the_authors_program():
    by_method = {config.method: config for config in methods.figure.configs("paper")}
    moco, simsiam, nnclr = (pretraining.siamese(by_method[name]) for name in ("moco", "simsiam", "nnclr"))
    assert isinstance(moco.projector, torch.nn.Identity), "512 features, queued as they are"
    learner = pretraining.contrast(by_method["moco"], moco, 0.06, 800)
    assert (learner.temperature, learner.momentum, learner.groups, learner.symmetric) == (0.1, 0.99, 1, True)
    assert tuple(learner.queue.rows.shape) == (4096, 512)
    learner = pretraining.contrast(by_method["nnclr"], nnclr, 0.03, 800, warmup=by_method["nnclr"].warmup)
    assert (learner.temperature, learner.symmetric, tuple(learner.queue.rows.shape)) == (0.5, True, (4096, 256))

    def linear(net):
        return [(part.in_features, part.out_features) for part in net.modules() if isinstance(part, torch.nn.Linear)]

    assert linear(nnclr.projector) == [(512, 2048), (2048, 256)]
    assert linear(nnclr.predictor) == [(256, 4096), (4096, 256)]
    assert linear(simsiam.projector) == [(512, 2048), (2048, 2048)]
    rates = {name: (config.lr, config.warmup, config.probe_lr) for name, config in by_method.items()}
    assert rates == {"moco": (0.06, 0, 5.0), "simsiam": (0.03, 10, 1.0), "nnclr": (0.03, 10, 1.0)}
    assert {config.epochs for config in by_method.values()} == {800}


def test_a_paper_grid_has_every_network_that_its_figure_compares():
    own = {(c.union, c.length, c.repeat) for c in similarity.figure.configs("paper")}
    networks = unions.PAPER_NETWORKS
    for name in (*similarity.NAMES, "noise", *similarity.SINGLE, "again", "untrained"):
        assert tuple(networks[name])[:3] in own, name
    birds, vehicles, more, rest = subsets.PAPER_STEPS[-1].split("+")
    classes = [pretraining.classes_in(name) for name in (birds, vehicles, more, rest)]
    assert len(classes[0]) == 59
    assert sorted(chain.from_iterable(classes)) == list(range(1000)), "every class of ImageNet in one part"


def test_a_universal_task_that_is_not_at_hand_stays_untested():
    rows = [({"family": "UniCL", "pretrained": which}, {"universal": 0.5}) for which in ("specific", "diverse")]
    with pytest.raises(Missing, match="ImageNet22k"):
        unicl.universal(made_up(rows))
