"""Published models from disk: found by path, in the data folder and in the hub's cache, scored and looked into."""

import os
import shutil
import sys

import numpy as np
import pytest
import torch

from featurelab.modules.language import (
    NEWLINES,
    ModelMissing,
    attention_norms,
    find_model,
    label_logits,
    load_model,
    model_digests,
    pad_left,
    word_scores,
)
from featurelab.modules.measures import attention_span_norms

transformers = pytest.importorskip("transformers")

SHOTS = [("a good film", "positive"), ("a dull film number 7", "negative")]
PROMPTS = [NEWLINES.prompt(SHOTS[:k], query) for k, query in ((0, "a dull one"), (2, "good"), (1, "what a xylophone"))]
WORDS = [" positive", " negative"]


@pytest.fixture(scope="module")
def model(llama):
    return load_model(str(llama))


@pytest.fixture(scope="module")
def in_full(llama):
    """The same network, which tells its attention."""
    return transformers.AutoModelForCausalLM.from_pretrained(llama, attn_implementation="eager")


@pytest.fixture(autouse=True)
def nothing_else(monkeypatch, tmp_path):
    """No network, and a cache of the hub that is empty."""

    def refuse(*arguments, **options):
        raise AssertionError("a connection was opened")

    monkeypatch.setattr("socket.socket.connect", refuse)
    monkeypatch.setattr("socket.getaddrinfo", refuse)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.delenv("FEATURELAB_DATA", raising=False)


def slow_score(model, prompt, word):
    """log p by one pass over the unpadded sequence, token after token."""
    context, whole = (model.tokenizer(text)["input_ids"] for text in (prompt, prompt + word))
    assert whole[: len(context)] == context
    with torch.no_grad():
        shares = model.net(torch.tensor([whole])).logits[0].double().log_softmax(-1)
    return sum(shares[j - 1, whole[j]].item() for j in range(len(context), len(whole)))


@pytest.mark.parametrize("words", [WORDS, [" positive", " not negative at all"], [" a", " dull"]])
def test_scores_are_log_probabilities_of_all_tokens_of_a_word(model, words):
    found = word_scores(model, PROMPTS, words)
    for row, prompt in zip(found, PROMPTS, strict=True):
        np.testing.assert_allclose(row, [slow_score(model, prompt, word) for word in words], rtol=1e-5)
    assert len(model.tokenizer.tokenize(" not negative at all")) > 3


@pytest.mark.parametrize("batch_size", [1, 2, 16])
def test_batches_score_as_prompts_do_one_by_one(model, batch_size):
    found = word_scores(model, PROMPTS, WORDS, batch_size=batch_size)
    alone = torch.stack([label_logits(model, prompt, WORDS) for prompt in PROMPTS])
    torch.testing.assert_close(found, alone, rtol=1e-5, atol=1e-5)


def test_a_word_that_the_tokenizer_joins_with_the_end_of_the_prompt_counts_from_where_they_differ(model):
    joined = word_scores(model, ["The answer is posi"], ["tive", "ti"])
    assert (
        model.tokenizer("The answer is posi")["input_ids"]
        != model.tokenizer("The answer is positive")["input_ids"][:-1]
    )
    assert (joined < 0).all()


def test_padding_on_the_left_changes_nothing(model, in_full):
    ids = [encoded.ids for encoded in model.encode(PROMPTS)]
    together, mask = pad_left(ids)
    assert not mask.all()
    with torch.no_grad():
        logits, rows = model.logits(together, mask, 2), model.last_row(together, mask)
        for index, sequence in enumerate(ids):
            plain = in_full(torch.tensor([sequence]), output_attentions=True)
            torch.testing.assert_close(logits[index], plain.logits[0, -2:], rtol=1e-4, atol=1e-5)
            own = plain.attentions[-1][0, :, -1]
            torch.testing.assert_close(rows[index, :, -len(sequence) :], own, rtol=1e-4, atol=1e-6)
            assert rows[index, :, : -len(sequence)].abs().sum() == 0
            torch.testing.assert_close(own.sum(1), torch.ones(4))


def test_norms_of_attention_are_those_of_loops(model, in_full):
    texts = [f"sentence: {x} Tom has 3 hats.\nThe answer is positive" for x in ("a good film", "dull")]
    parts = {"relevant": ["a good film", "dull"], "irrelevant": ["Tom has 3 hats."] * 2}
    spans = {
        name: [(text.index(part), text.index(part) + len(part)) for text, part in zip(texts, own, strict=True)]
        for name, own in parts.items()
    }
    found = attention_norms(model, texts, spans, batch_size=2)
    for name, where in spans.items():
        for index, (text, (begin, end)) in enumerate(zip(texts, where, strict=True)):
            tokens = model.tokenizer(text, return_offsets_mapping=True)
            with torch.no_grad():
                row = in_full(torch.tensor([tokens["input_ids"]]), output_attentions=True).attentions[-1][0, :, -1]
            total, count = 0.0, 0
            for j, (first, last) in enumerate(tokens["offset_mapping"]):
                if any(begin <= c < end for c in range(first, last)):
                    total += sum(row[h, j].item() ** 2 for h in range(4))
                    count += 1
            assert count > 0
            np.testing.assert_allclose(found[name][index], [total**0.5, (total / count) ** 0.5], rtol=1e-5)
    with pytest.raises(ValueError, match="at least one token"):
        attention_norms(model, ["a"], {"none": [(5, 6)]})


def test_norms_of_all_columns_are_those_of_the_whole_row():
    rows = torch.rand(3, 2, 5, dtype=torch.float64).softmax(-1)
    found = attention_span_norms(rows, torch.ones(3, 5, dtype=torch.bool))
    torch.testing.assert_close(found.norm, rows.flatten(1).norm(dim=1))
    left, right = torch.zeros(3, 5, dtype=torch.bool), torch.ones(3, 5, dtype=torch.bool)
    left[:, :2], right[:, :2] = True, False
    parts = attention_span_norms(rows, left).norm ** 2 + attention_span_norms(rows, right).norm ** 2
    torch.testing.assert_close(parts.sqrt(), found.norm)
    torch.testing.assert_close(found.per_token * 5**0.5, found.norm)


def test_a_chat_template_is_used_where_there_is_one(chat_llama, model):
    chat = load_model(str(chat_llama))
    text = chat.prompt(NEWLINES, SHOTS[:1], "dull")
    assert text == (
        "<s>[user] sentence: a good film\n[assistant] The answer is positive.\n[user] sentence: dull\n"
        "[assistant] The answer is"
    )
    ids = chat.encode([text])[0].ids
    assert ids.count(chat.tokenizer.bos_token_id) == 1
    plain = load_model(str(chat_llama), chat=False)
    assert plain.prompt(NEWLINES, SHOTS[:1], "dull") == model.prompt(NEWLINES, SHOTS[:1], "dull")
    assert word_scores(chat, [text], WORDS).shape == (1, 2)


def hub_copy(llama, root, name="someone/tiny"):
    """The folder that a download of the model leaves in the hub's cache."""
    commit = "0" * 40
    home = root / f"models--{name.replace('/', '--')}"
    shutil.copytree(llama, home / "snapshots" / commit)
    (home / "refs").mkdir()
    (home / "refs" / "main").write_text(commit)
    return home / "snapshots" / commit


def test_a_model_is_found_by_path_in_the_data_folder_and_in_the_cache(llama, model, tmp_path, monkeypatch):
    assert find_model(str(llama)) == llama
    snapshot = hub_copy(llama, tmp_path / "hub")
    assert find_model("someone/tiny") == snapshot
    shutil.copytree(llama, tmp_path / "data" / "models" / "little")
    monkeypatch.setenv("FEATURELAB_DATA", str(tmp_path / "data"))
    assert find_model("little") == tmp_path / "data" / "models" / "little"
    for name in ("someone/tiny", "little"):
        torch.testing.assert_close(word_scores(load_model(name), PROMPTS, WORDS), word_scores(model, PROMPTS, WORDS))


def test_what_is_missing_is_said_in_one_line_with_the_way_to_it(llama, tmp_path, monkeypatch):
    with pytest.raises(ModelMissing, match="run `hf download meta-llama/Llama-2-7b-hf`") as caught:
        load_model("meta-llama/Llama-2-7b-hf")
    assert "\n" not in str(caught.value)
    with pytest.raises(ModelMissing, match="model 'stories' is not on this machine: put it into"):
        find_model("stories")
    with pytest.raises(ModelMissing, match="is not on this machine"):
        find_model(str(tmp_path / "nowhere"))
    copy = tmp_path / "copy"
    shutil.copytree(llama, copy)
    (copy / "model.safetensors").unlink()
    with pytest.raises(ModelMissing, match="lacks weights as safetensors"):
        find_model(str(copy))
    (copy / "model.safetensors.index.json").write_text(
        '{"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}'
    )
    shutil.copy(llama / "model.safetensors", copy / "one.safetensors")
    with pytest.raises(ModelMissing, match=r"lacks two.safetensors, one of its 2 files"):
        find_model(str(copy))
    monkeypatch.setattr("featurelab.modules.language.hub_files.find_spec", lambda name: None)
    with pytest.raises(ModelMissing, match=r"pip install 'feature-learning-lab\[lm\]'"):
        find_model(str(llama))


def test_digests_are_of_weights_and_tokenizer_and_change_with_a_byte(llama, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(llama, copy)
    first = model_digests(str(llama))
    assert model_digests(str(copy)) == first
    assert set(first) == {"weights", "tokenizer"}
    content = bytearray((copy / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (copy / "model.safetensors").write_bytes(content)
    os.utime(copy / "model.safetensors", ns=(1, 1))
    changed = model_digests(str(copy))
    assert changed["weights"] != first["weights"]
    assert changed["tokenizer"] == first["tokenizer"]
    (copy / "tokenizer.json").write_text((copy / "tokenizer.json").read_text() + "\n")
    assert model_digests(str(copy))["tokenizer"] != first["tokenizer"]


def test_half_precision_is_what_was_asked_for(llama, model):
    half = load_model(str(llama), weights="bfloat16")
    assert {p.dtype for p in half.net.parameters()} == {torch.bfloat16}
    torch.testing.assert_close(
        word_scores(half, PROMPTS, WORDS), word_scores(model, PROMPTS, WORDS), rtol=0.2, atol=1.0
    )


def test_a_prompt_that_is_too_long_is_refused(model):
    with pytest.raises(ValueError, match="the model reads at most 128: use fewer exemplars"):
        word_scores(model, ["dull " * 200], WORDS)
    with pytest.raises(ValueError, match="at least one prompt"):
        word_scores(model, [], WORDS)


def test_a_model_of_another_kind_is_scored_too(llama, tmp_path, model):
    """GPT-2 has learned positions, and other names for everything."""
    config = transformers.GPT2Config(vocab_size=len(model.tokenizer), n_positions=64, n_embd=16, n_layer=2, n_head=2)
    torch.manual_seed(0)
    transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path / "gpt2")
    model.tokenizer.save_pretrained(tmp_path / "gpt2")
    other = load_model(str(tmp_path / "gpt2"))
    assert other.longest == 64
    found = word_scores(other, PROMPTS[:2], WORDS)
    for row, prompt in zip(found, PROMPTS, strict=False):
        np.testing.assert_allclose(row, [slow_score(other, prompt, word) for word in WORDS], rtol=1e-5)


def test_nothing_else_imports_transformers():
    code = "from featurelab.modules import data, language, nets; language.ModelMissing; language.WordModel; import sys"
    import subprocess

    done = subprocess.run(
        [sys.executable, "-c", f"{code}; print('transformers' in sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ},
    )
    assert done.stdout.strip() == "False"
