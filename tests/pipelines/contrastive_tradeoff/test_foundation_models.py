"""Tables on frozen encoders: published ones from disk, tiny, through whole trials; and what is measured of them."""

import json

import numpy as np
import pytest
import torch
from publicfiles import write_public
from test_unions_and_transfer import made_up

from featurelab.modules import data
from featurelab.pipelines.contrastive_tradeoff import foundation, foundation_pictures, foundation_texts
from featurelab.pipelines.contrastive_tradeoff.pretrained import transfer
from featurelab.pipelines.engine.command.cli import main
from featurelab.pipelines.engine.errors import RequestError
from featurelab.pipelines.engine.experiment.needs import require_data
from featurelab.pipelines.engine.experiment.printed import printed_table
from featurelab.pipelines.engine.trial.environment import input_digests
from featurelab.pipelines.engine.verdict.check import performed

PICTURES, TEXTS = foundation_pictures.figure, foundation_texts.figure
TINY = {"n_train": 30, "n_test": 12, "shares": (0.5, 1.0), "epochs": 1, "device": "cpu"}


@pytest.fixture(scope="module")
def at_hand(tmp_path_factory):
    """A data folder with tiny encoders under the names of published ones, and a few pictures and texts."""
    pytest.importorskip("transformers")
    datasets = pytest.importorskip("datasets")
    from tinyencoders import save_bert, save_clip, save_moco

    root = tmp_path_factory.mktemp("data")
    save_clip(root / "models" / foundation_pictures.CLIP)
    save_moco(root / "models" / foundation_pictures.MOCO)
    save_bert(root / "models" / foundation_texts.SIMCSE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEATURELAB_DATA", str(root))
        patch.setattr(datasets.config, "HF_DATASETS_CACHE", str(root / "cache"))
        patch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(root / "hub"))
        for name in ("svhn", "gtsrb", "cifar10"):
            write_public(root, name, {"train": 4, "test": 2})
        for name in ("imdb", "ag_news"):
            write_public(root, name, {"train": 16, "test": 8})
        yield root


@pytest.mark.parametrize("family", ["CLIP", "MoCo v3"])
def test_a_trial_on_a_published_encoder_has_every_cell(at_hand, family):
    tables = {"CLIP": {"tasks": "gtsrb", "others": "svhn"}, "MoCo v3": {"tasks": "cifar10", "others": "svhn"}}[family]
    models = {"CLIP": foundation_pictures.CLIP, "MoCo v3": foundation_pictures.MOCO}
    config = PICTURES.paper.but(
        family=family, model=models[family], stored=(1, 2, 3), width=5, batch_size=16, **tables, **TINY
    )
    require_data(PICTURES, [config])
    found = performed(PICTURES, [config])
    methods = {"lp", "ft_1", "ft_2", "ft_3", "cr_2", "cr_3", "cr_others_2"}
    for method in methods:
        curve = found.curve(f"{tables['tasks']}/{method}")
        assert list(curve.index) == [50, 100]
        assert curve.between(0, 1).all()
    for claim in PICTURES.claims:
        assert np.isfinite([*np.atleast_1d(list(_values(claim.measure(found))))]).all()
    kinds = {key.split(" ")[0] for key in input_digests(PICTURES, config)}
    assert kinds == ({"weights", "pictures"} if family == "CLIP" else {"weights"})


def test_a_desktop_trial_has_every_cell_on_a_mobilenet(at_hand):
    transformers = pytest.importorskip("transformers")
    folder = at_hand / "models" / foundation_pictures.MOBILENET
    net = transformers.MobileNetV2ForImageClassification(transformers.MobileNetV2Config(depth_multiplier=0.25))
    net.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text("{}")
    write_public(at_hand, "mnist", {"train": 4, "test": 2})
    small = {"stored": (1, 2, 3), "width": 5, "batch_size": 16, "edge": 32, **TINY}
    configs = [config.but(**small) for config in PICTURES.configs("desktop") if config.seed == 0]
    require_data(PICTURES, configs)
    found = performed(PICTURES, configs)
    for claim in PICTURES.claims:
        assert np.isfinite(list(_values(claim.measure(found)))).all()
    assert {task for _, task, _ in foundation.tables(found)} == {"cifar10", "gtsrb"}


def test_desktop_trials_read_real_texts_as_a_bag_of_words(at_hand):
    write_public(at_hand, "sst2", {"train": 16, "validation": 8})
    small = {"unlabelled": 30, "vocabulary": 6, "encoder_width": 4, "hidden": 4, "pretraining_epochs": 1, **TINY}
    configs = [config.but(**small) for config in TEXTS.configs("desktop") if config.seed == 0]
    require_data(TEXTS, configs)
    found = performed(TEXTS, configs)
    for claim in TEXTS.claims:
        assert np.isfinite(list(_values(claim.measure(found)))).all()
    assert {task for _, task, _ in foundation.tables(found)} == {"imdb", "ag_news", "sst2"}


def test_frequent_words_have_numbers():
    known = foundation_texts.Vocabulary(["A good film, a good one", "a film"], 3)
    assert known.numbers == {"a": 2, "film": 3, "good": 4}
    assert known.tokens(["Good films: a", ""], 2).tolist() == [[4, 1], [1, 0]]


def test_a_trial_on_texts_trains_the_whole_encoder(at_hand):
    config = TEXTS.paper.but(**TINY | {"batch_size": 8})
    found = performed(TEXTS, [config])
    assert set(found.curve("imdb/cr").index) == {50, 100}
    for claim in TEXTS.claims:
        assert np.isfinite(list(_values(claim.measure(found)))).all()
    assert set(input_digests(TEXTS, config)) >= {f"weights of {foundation_texts.SIMCSE}", "imdb, train"}
    encoder = foundation_texts.encoder_of(config, None)
    x, _, _ = foundation_texts.texts(config, encoder, "imdb")
    before = {name: p.detach().clone() for name, p in encoder.named_parameters()}
    y = torch.arange(len(x)) % 2
    task = data.TensorData((x, y), batch_size=8, dtype="float32", augment=data.RepeatedSamples())
    from featurelab.pipelines import learners
    from featurelab.tracking.outbox.null import NullRecorder

    encoder.train()
    transfer.fine_tuned(
        config.but(lr=0.1), NullRecorder(), task, encoder, encoder.width, 2, learners.SimCSE, learners.adamw(0.1), 1.0
    )
    same = {name for name, p in encoder.named_parameters() if torch.equal(p, before[name])}
    assert len(same) < len(before) / 5


def _values(measured):
    return measured.values() if isinstance(measured, dict) else [measured]


def test_the_whole_command_runs_a_published_encoder_with_each_method(at_hand, tmp_path, monkeypatch, capsys):
    small = [
        "n_train=30",
        "n_test=12",
        "shares=[1.0]",
        "epochs=1",
        "stored=[1,2]",
        "width=4",
        "batch_size=16",
        "device=cpu",
        "tasks=svhn",
        "others=gtsrb",
    ]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["featurelab", "run", PICTURES.name, "--scale", "paper", "--json", *small])
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capsys.readouterr()
    assert not ended.value.code, err
    said = json.loads(out)
    assert said["status"] == "finished"
    assert {"svhn/lp", "svhn/ft_2", "svhn/cr_2"} <= set(said["metrics"])


def test_what_is_missing_is_said_with_the_way_to_it(at_hand, monkeypatch):
    with pytest.raises(RequestError, match="run `hf download someone/else`"):
        require_data(PICTURES, [PICTURES.paper.but(model="someone/else", tasks="svhn", others="gtsrb")])
    with pytest.raises(RequestError, match="featurelab data fetch imagenet"):
        require_data(PICTURES, [PICTURES.paper])


def test_signs_that_fill_up_a_class_are_changed_and_the_first_ones_are_not(at_hand, monkeypatch):
    monkeypatch.setitem(foundation_pictures.AVAILABLE, "gtsrb", 30)
    monkeypatch.setattr(foundation_pictures.pretraining, "SIGNS_A_CLASS", 6)
    config = PICTURES.paper.but(tasks="gtsrb", others="svhn", **TINY)
    pictures = foundation_pictures.Pictures(config, None)
    train, _ = data.public_rows("gtsrb", n_test=12, per_class=6, seed=config.streams.data)
    plain, filled = (torch.cat(list(pictures.shown(train, filled))) for filled in (False, True))
    changed = (plain != filled).flatten(1).any(1).numpy()
    assert (changed == data.repeated_rows(train.rows)).all()
    assert changed.sum() == 2 * 43
    stored, y, *_ = pictures.task("gtsrb", 1)
    assert torch.bincount(y).tolist() == [6] * 43
    assert stored.features.dtype == torch.float16


def test_labelled_rows_are_in_turn_of_each_class_and_nested():
    y = torch.arange(200) % 10
    few, many = (foundation.labelled(PICTURES.laptop, y, share, "digits") for share in (0.1, 0.5))
    assert torch.bincount(y[few]).tolist() == [2] * 10
    assert set(few.tolist()) < set(many.tolist())


def test_the_paper_s_numbers_of_labels_views_and_updates_are_in_the_preset():
    config = PICTURES.paper
    assert (config.lr, config.probe_lr, config.weight_decay, config.batch_size, config.epochs) == (
        0.06,
        5.0,
        5e-4,
        256,
        200,
    )
    assert (config.strength, config.width, config.stored) == (1.0, 1024, (1, 10, 100))
    assert config.shares == (0.01, 0.05, 0.1, 0.2, 1.0)
    texts = TEXTS.paper
    assert (texts.lr, texts.probe_lr, texts.weight_decay, texts.batch_size, texts.epochs) == (5e-5, 5e-3, 0.01, 16, 3)
    assert {(c.family, c.tasks) for c in PICTURES.configs("paper")} == {
        ("CLIP", "imagenet"),
        ("CLIP", "svhn"),
        ("CLIP", "gtsrb"),
        ("MoCo v3", "cifar10"),
        ("MoCo v3", "svhn"),
        ("MoCo v3", "gtsrb"),
    }


def test_methods_are_compared_cell_by_cell():
    rows = []
    for tasks, extra in (("imagenet", 0.0), ("svhn", 0.1)):
        values = {
            "lp": 0.5,
            "ft_1": 0.55,
            "ft_10": 0.6 + extra,
            "ft_100": 0.62,
            "cr_10": 0.63 + extra,
            "cr_100": 0.66,
            "cr_others_10": 0.61 + extra,
        }
        same = {"family": "CLIP", "tasks": tasks, "shares": (0.01, 1.0), "stored": (1, 10, 100)}
        rows.append((same, {f"{tasks}/{name}": value for name, value in values.items()}))
    runs = made_up(rows, step=(1, 100))
    assert foundation_pictures.order(runs) == pytest.approx({"CR_over_FT": 0.03, "FT_over_LP": 0.15})
    assert foundation_pictures.over_ft(runs) == pytest.approx(0.035)
    assert foundation_pictures.over_others(runs) == pytest.approx(0.02)
    assert foundation_pictures.more_views(runs) == pytest.approx({"some": 0.1, "most": -0.03})


def test_printed_tables_have_the_exceptions_that_are_known():
    tables = {}
    for row in printed_table(foundation_pictures.__file__, "tables_f_6_to_f_8.csv"):
        tables.setdefault((row["encoder"], row["set"]), {})[row["method"]] = list(row.values())[3:]
    pictures = [table for (encoder, _), table in tables.items() if encoder != "SimCSE"]
    for way, over, cells in (("CR10", "FT10", 28), ("CR100", "FT100", 29), ("CR10", "LP", 29)):
        assert sum(int((np.subtract(table[way], table[over]) > 0).sum()) for table in pictures) == cells
    assert all(table["LP"][-1] < table["FT10"][-1] < table["CR10"][-1] for table in pictures)
    for name in ("IMDB", "AGNews"):
        table = tables["SimCSE", name]
        assert (np.diff([table[way] for way in ("LP", "FT", "CR")], axis=0) > 0).all()
