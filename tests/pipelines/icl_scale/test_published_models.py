"""Figures with a published model in place of a stand-in: from files on disk to verdicts, and what is said without."""

import os
import shutil

import pytest
from tinyllama import save_llama

from featurelab.pipelines.engine.errors import RequestError
from featurelab.pipelines.engine.experiment.catalogue import registry
from featurelab.pipelines.engine.experiment.needs import dry_run, require_data
from featurelab.pipelines.engine.trial.environment import input_digests
from featurelab.pipelines.engine.verdict.check import performed
from featurelab.tracking.provenance import changes, environment

datasets, transformers = pytest.importorskip("datasets"), pytest.importorskip("transformers")

SENTIMENT, FLIPPED = registry.find("icl_scale/sentiment"), registry.find("icl_scale/flipped_labels")
TRUE = [("a good film", 1), ("a dull film", 0), ("what a dull one", 0), ("good, good", 1)]


@pytest.fixture(scope="module")
def at_hand(tmp_path_factory):
    """A data folder with a few sentences of SST-2 and an untrained tiny Llama, plain and with a chat template."""
    root = tmp_path_factory.mktemp("data")
    (root / "sst2").mkdir()
    for split, n in (("train", 24), ("validation", 12)):
        rows = [TRUE[i % 4] for i in range(n)]
        table = {"sentence": [f"{x} {i}" for i, (x, _) in enumerate(rows)], "label": [y for _, y in rows]}
        datasets.Dataset.from_dict(table).to_parquet(root / "sst2" / f"{split}-0.parquet")
    for name, chat in (("stories260K", False), ("talks", True)):
        save_llama(root / "models" / name, chat=chat, max_position_embeddings=512)
    return root


@pytest.fixture(autouse=True)
def data_folder(at_hand, monkeypatch, tmp_path):
    monkeypatch.setenv("FEATURELAB_DATA", str(at_hand))
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    return at_hand


def test_a_model_that_cannot_do_the_task_leaves_the_paper_s_claims_untested():
    results = performed(SENTIMENT, [SENTIMENT.paper.but(seed=seed, n_test=12, shares=[0.0, 1.0]) for seed in range(3)])
    verdicts = {claim.id: claim.judge(results, "paper") for claim in SENTIMENT.claims}
    assert 0 <= results.at("accuracy/flipped", 0) <= 1
    assert results.final("accuracy/larger_class") == 0.5
    assert results.final("prompts/read") == 12
    for name in ("s2_inverted_labels_take_accuracy", "s3_falls_below_chance"):
        assert verdicts[name].status == "untested"
        assert "the model cannot do the task: with true labels it is right in" in verdicts[name].reason
    assert verdicts["s1_the_model_can_do_the_task"].measured is not None


@pytest.mark.parametrize("family", ["base", "chat"])
def test_flips_and_attention_are_measured_of_published_models(family):
    name = {"base": "stories260K", "chat": "talks"}[family]
    config = FLIPPED.paper.but(family=family, model=name, n_test=8, n_attention=5, exemplars=3, shares=[0.0, 1.0])
    results = performed(FLIPPED, [config])
    assert set(results.curve("accuracy/flipped").index) == {0, 100}
    (kept,) = results.arrays("attention")
    assert {part: values.shape for part, values in kept.items()} == {
        f"{label}_{span}": (5,) for label in ("correct", "wrong") for span in ("relevant", "irrelevant")
    }
    ratio = kept["correct_irrelevant"].mean() / kept["correct_relevant"].mean()
    assert results.final("attention_norm/correct_balance") == pytest.approx(ratio)
    assert not any(name.startswith("loss/") for name in results.read.points.metric), "nothing is trained"


def test_small_decoders_learn_from_real_sentences_with_inverted_labels():
    small = FLIPPED.desktop.but(exemplars=2, steps=80, batch_size=16, lr=2e-2, warmup=5, inverted=0.0, shares=[0, 1])
    sizes = [{"size": 1, "width": 4, "heads": 1, "layers": 1}, {"size": 2, "width": 8, "heads": 1, "layers": 1}]
    configs = [small.but(seed=seed, **size) for size in sizes for seed in range(3)]
    results = performed(FLIPPED, configs)
    for size in (1, 2):
        assert results.at("accuracy/flipped", 0, size=size) > 0.9
        assert results.at("loss/train", size=size, step=80) < 0.4
    assert not results.has("attention_norm/correct_balance")
    verdicts = {claim.id: claim.judge(results, "desktop") for claim in FLIPPED.claims}
    assert verdicts["c12_larger_models_fall_more"].measured is not None
    assert verdicts["c12_pattern_in_numbers"].status == "untested"
    assert set(input_digests(FLIPPED, small)) == {"sst2, train", "sst2, validation"}


def test_what_a_run_reads_stands_in_its_environment(at_hand, tmp_path, monkeypatch):
    found = input_digests(SENTIMENT, SENTIMENT.paper)
    assert set(found) == {"weights of stories260K", "tokenizer of stories260K", "sst2, train", "sst2, validation"}
    assert input_digests(SENTIMENT, SENTIMENT.laptop) == {}
    copy = tmp_path / "other"
    shutil.copytree(at_hand, copy)
    path = copy / "models" / "stories260K" / "tokenizer_config.json"
    path.write_text(path.read_text() + "\n")
    table = datasets.Dataset.from_dict({"sentence": ["another"], "label": [0]})
    table.to_parquet(copy / "sst2" / "train-0.parquet")
    monkeypatch.setenv("FEATURELAB_DATA", str(copy))
    now = input_digests(SENTIMENT, SENTIMENT.paper)
    differing = {name for name in found if found[name] != now[name]}
    assert differing == {"tokenizer of stories260K", "sst2, train"}
    lines = changes(environment(threads=1, read=found), environment(threads=1, read=now))
    assert lines == [f"{name}: {found[name]} -> {now[name]}" for name in sorted(differing)]
    assert changes(environment(read=found), environment(read=found)) == []
    assert "read" not in environment(threads=1)


def test_a_model_that_is_missing_is_named_with_the_way_to_it():
    with pytest.raises(RequestError, match=r"model 'owner/none' is not on this machine: run `hf download owner/none`"):
        require_data(SENTIMENT, [SENTIMENT.paper.but(model="owner/none")])
    require_data(SENTIMENT, [SENTIMENT.paper])
    said = dry_run(SENTIMENT, SENTIMENT.paper.but(model="owner/none"), "paper")
    assert said["data"]["sst2"] == "here"
    assert "hf download owner/none" in said["data"]["owner/none"]


def test_the_command_line_says_so_in_one_line_and_writes_nothing(tmp_path, monkeypatch):
    from hostile import Commands, check_line

    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)
    for name in ("MLFLOW_TRACKING_URI", "FEATURELAB_OUTBOX"):
        monkeypatch.delenv(name, raising=False)
    commands = Commands(home)
    for arguments in (
        ["run", "icl_scale/sentiment", "--scale", "paper", "model=owner/none"],
        ["sweep", "icl_scale/sentiment", "--scale", "paper", "--over", "model=owner/none,owner/other"],
        ["reproduce", "icl_scale/attention_magnitude", "--scale", "paper"],
    ):
        answer = commands(*arguments)
        assert (answer.code, answer.out) == (2, ""), arguments
        check_line(answer.err)
        assert "`hf download " in answer.err
    assert list(home.iterdir()) == []
    assert os.environ["FEATURELAB_DATA"]
