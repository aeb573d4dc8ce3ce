"""Figures with a published model in place of a stand-in: from files on disk to what is measured, and rerun alike."""

import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tinyllama import save_llama

from featurelab.modules import data, language
from featurelab.pipelines.engine.errors import RequestError
from featurelab.pipelines.engine.experiment.catalogue import registry
from featurelab.pipelines.engine.experiment.needs import require_data
from featurelab.pipelines.engine.trial.environment import input_digests
from featurelab.pipelines.engine.verdict.check import performed, recorded
from featurelab.pipelines.gemfilter import continuation, longbench, novels, printed
from featurelab.tracking.provenance import changes, environment

datasets, transformers = pytest.importorskip("datasets"), pytest.importorskip("transformers")

CONTINUATION, LONG = registry.find("gemfilter/continuation"), registry.find("gemfilter/longbench")
GOES_ON = CONTINUATION.paper.but(
    n_prompt=90, n_after=6, n_test=4, n_needles_test=2, keeps=[40, 64], keep_last=8, window=8, depths=[0.0, 1.0]
)
SHORT = {"n_prompt", "n_after", "n_test", "keeps", "keep_last", "window", "depths"}
SOME = LONG.paper.but(
    model="tiny",
    tasks=["hotpotqa", "trec"],
    n_test=2,
    keeps=[24, 48],
    methods=["full", "gemfilter"],
    window=8,
    filter_layer=1,
    longest=200,
)


@pytest.fixture(scope="module")
def at_hand(tmp_path_factory):
    """A data folder with an untrained tiny Llama, rows of two tasks and an essay."""
    root = tmp_path_factory.mktemp("data")
    for name, chat in (("stories260K", False), ("tiny", True)):
        save_llama(root / "models" / name, chat=chat, max_position_embeddings=512)
    rows = [
        {"context": "a good film. " * 20, "input": f"number {n}", "answers": ["good"], "all_classes": ["good", "dull"]}
        for n in range(3)
    ]
    for task in ("hotpotqa", "trec"):
        (root / f"longbench_{task}").mkdir()
        datasets.Dataset.from_list(rows).to_parquet(root / f"longbench_{task}" / "test-0.parquet")
    (root / "long_texts").mkdir()
    novels = [{"title": f"novel {n}", "text": f"\n A good  film {n} was dull. It is good." * 200} for n in range(2)]
    datasets.Dataset.from_list(novels).to_parquet(root / "long_texts" / "gutenberg.parquet")
    return root


@pytest.fixture(autouse=True)
def data_folder(at_hand, monkeypatch, tmp_path):
    monkeypatch.setenv("FEATURELAB_DATA", str(at_hand))
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))


def test_a_model_goes_on_with_its_own_texts_and_a_run_is_repeated_exactly():
    first, again = (performed(CONTINUATION, [GOES_ON]) for _ in range(2))
    assert recorded(first).equals(recorded(again))
    assert first.final("layer/chosen") in (1, 2)
    for name in (*continuation.NAMES, "full"):
        assert np.all(first.curve(f"nats/{name}") > 0)
    everything = performed(CONTINUATION, [GOES_ON.but(keeps=[90])])
    for name in ("gemfilter", "printed", "snapkv", "h2o", "last", "random", "other"):
        assert everything.final(f"nats/{name}") == pytest.approx(everything.final("nats/full"), abs=1e-6), name
    assert not any(name.startswith("loss/") for name in set(recorded(first).metric)), "nothing is trained"


def test_the_loss_is_that_of_the_tokens_that_follow():
    """Of the text itself, token after token."""
    model = language.load_model("stories260K", chat=False)
    texts = language.sampled_texts(model, 4 + 2 * 2 * 2, 96, seed=GOES_ON.streams.data)[:4]
    with torch.no_grad():
        shares = model.net(texts[:, :-1]).logits.double().log_softmax(-1)
    slow = -shares[:, 89:].gather(2, texts[:, 90:, None]).mean()
    found = performed(CONTINUATION, [GOES_ON.but(keeps=[40])])
    assert found.final("nats/full") == pytest.approx(slow.item(), abs=1e-5)


def test_a_model_goes_on_with_novels_and_what_needs_one_that_uses_the_needle_is_untested():
    config = CONTINUATION.desktop.but(**GOES_ON.model_dump(include=SHORT), n_needles_test=3)
    results = performed(CONTINUATION, [config.but(seed=seed) for seed in range(3)])
    assert np.all(results.curve("nats/full") > 0)
    assert set(results.curve("use/needle").index) == {0, 100}
    verdicts = {claim.id: claim.judge(results, "desktop") for claim in CONTINUATION.claims}
    for name in ("m1_a_layer_keeps_the_needle", "m1b_because_it_is_there"):
        assert verdicts[name].status == "untested"
        assert "this needs a larger model" in verdicts[name].reason
    assert verdicts["m4_as_good_as_snapkv"].measured is not None
    assert set(input_digests(CONTINUATION, config)) == {
        "weights of stories260K",
        "tokenizer of stories260K",
        "long_texts, gutenberg",
    }


def test_passages_begin_at_words_of_novels_and_have_single_spaces():
    found = novels.passages(5, 90, seed=3)
    assert found == novels.passages(5, 90, seed=3) != novels.passages(5, 90, seed=4)
    whole = [" ".join((f"\n A good  film {n} was dull. It is good." * 200).split()) for n in range(2)]
    for passage in found:
        assert len(passage) == 90
        assert any(f" {passage}" in novel for novel in whole)
    with pytest.raises(data.DatasetRefused, match="none of the texts of 'long_texts'"):
        novels.passages(1, 5000, seed=0)


def test_a_redrawn_model_has_other_weights_of_the_same_shapes():
    model = language.load_model("stories260K", chat=False)
    first, again, other = (novels.redrawn(model.net, seed).state_dict() for seed in (0, 0, 1))
    before = model.net.state_dict()
    assert {name: each.shape for name, each in first.items()} == {name: each.shape for name, each in before.items()}
    weight = "model.embed_tokens.weight"
    assert torch.equal(first[weight], again[weight])
    assert not torch.equal(first[weight], other[weight])


def test_needles_are_counted_among_what_is_kept(monkeypatch):
    """A layer keeps tokens 3, 4, 7, 9 of the first prompt and 0, 1 of the others."""
    first, rest = torch.tensor([3, 4, 7, 9]), torch.tensor([0, 1])
    monkeypatch.setattr(continuation.decoding, "Choice", lambda *_, **__: lambda scores: first if scores[0] else rest)
    monkeypatch.setattr(continuation.decoding, "layer_scores", lambda net, ids, score: [ids.repeat(2, 1)])
    needles = [(3, 6), (9, 10), (0, 2)]
    by_depth = [
        SimpleNamespace(ids=[torch.full((10,), float(row == 0))] * 2, needles=[needles[row]] * 2) for row in range(3)
    ]
    own, other = continuation.needle_kept(GOES_ON, torch.nn.Linear(1, 1), by_depth)
    np.testing.assert_allclose(own, np.array([2 / 3, 0, 1])[:, None] * np.ones(2))
    np.testing.assert_allclose(other, np.array([0, 1, 1])[:, None] * np.ones(2), err_msg="of depths 2, 0 and 1")


def test_tasks_are_scored_on_rows_of_their_own_and_templates_come_by_demand(monkeypatch):
    answer = language.decoded_answer  # an untrained model would go on to the end
    monkeypatch.setattr(language, "decoded_answer", lambda *parts, tokens: answer(*parts, tokens=min(tokens, 4)))
    results = performed(LONG, [SOME, SOME.but(seed=1, chat=True, filter_layers=[1, 2])])
    plain, chat = results.where(seed=0), results.where(seed=1)
    assert set(plain.curve("average/gemfilter").index) == {24, 48}
    assert set(plain.curve("average/full").index) == {0}
    assert set(chat.curve("chat_layer_average/gemfilter").index) == {1, 2}
    assert chat.has("chat_average/full")
    assert not chat.has("average/full"), "averages with and without a template are kept apart"
    parts = [plain.at(f"task/{task}/gemfilter", 24) for task in SOME.tasks]
    assert plain.at("average/gemfilter", 24) == pytest.approx(np.mean(parts))
    assert all(0 <= part <= 100 for part in parts)


def test_what_a_run_reads_stands_in_its_environment(at_hand, tmp_path, monkeypatch):
    found = input_digests(CONTINUATION, CONTINUATION.paper)
    assert set(found) == {"weights of stories260K", "tokenizer of stories260K"}
    assert input_digests(CONTINUATION, CONTINUATION.laptop) == input_digests(LONG, LONG.laptop) == {}
    assert set(input_digests(LONG, SOME)) == {
        "weights of tiny",
        "tokenizer of tiny",
        "longbench_hotpotqa, test",
        "longbench_trec, test",
    }
    copy = tmp_path / "other"
    shutil.copytree(at_hand, copy)
    path = copy / "models" / "stories260K" / "tokenizer_config.json"
    path.write_text(path.read_text() + "\n")
    monkeypatch.setenv("FEATURELAB_DATA", str(copy))
    now = input_digests(CONTINUATION, CONTINUATION.paper)
    (line,) = changes(environment(threads=1, read=found), environment(threads=1, read=now))
    assert line.startswith("tokenizer of stories260K: ")


def test_what_is_missing_is_named_with_the_way_to_it(monkeypatch, tmp_path):
    monkeypatch.setenv("FEATURELAB_DATA", str(tmp_path))
    ways = ((CONTINUATION, "stories260K"), (LONG, "longbench_narrativeqa"))
    for experiment, way in ways:
        with pytest.raises(RequestError, match=way):
            require_data(experiment, [experiment.paper])
        require_data(experiment, [experiment.laptop])
    with pytest.raises(RequestError, match=r"'long_texts' is not on this machine: .*gutenberg\.org"):
        require_data(CONTINUATION, [CONTINUATION.desktop])


def test_printed_averages_are_in_the_order_that_the_claims_take_them_for():
    for model, table in printed.TABLE_9_1.items():
        best = table["gemfilter"][4096]
        assert best >= table["full"][0] - 1.5, model
        assert table["h2o"][4096] < min(best, table["snapkv"][4096])
        assert table["gemfilter"][1024] >= table["snapkv"][1024] - 1.5
        assert best > table["gemfilter"][1024]
    layers = list(printed.TABLE_9_2.values())
    assert max(layers[1:-1]) > max(layers[0], layers[-1])
    assert set(printed.TABLE_9_1) == set(printed.FILTER_LAYERS) == set(printed.SHORT)
    assert set(longbench.TASKS) == set(language.LONGBENCH)
    assert {data.dataset_source(task.source).name for task in language.LONGBENCH.values()} == set(LONG.needs)
