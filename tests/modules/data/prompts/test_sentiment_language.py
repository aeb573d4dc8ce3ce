"""Sentences and prompts of the made-up language, read back token by token."""

import numpy as np
import pytest
import torch

from featurelab.modules.data import SENTIMENT_WORDS, SentimentPrompts, permuted_labels, sentiment_sentences, stream


def spoken(row):
    return [SENTIMENT_WORDS[i] for i in row]


def sentiment(words):
    """1, 0 or None: what the words with a class say, if they agree."""
    kinds = {word.partition("_")[0] for word in words} - {"neutral", "irrelevant"}
    return {"positive": 1, "negative": 0}[kinds.pop()] if len(kinds) == 1 else None


def test_a_sentence_has_words_of_its_class_and_neutral_ones():
    assert len(SENTIMENT_WORDS) == len(set(SENTIMENT_WORDS)) == 53
    labels = np.arange(4000) % 2
    found = sentiment_sentences(labels, stream(0, "here"))
    assert [sentiment(spoken(row)) for row in found] == labels.tolist()
    neutral = np.mean([[word.startswith("neutral") for word in spoken(row)] for row in found], axis=0)
    np.testing.assert_allclose(neutral, 2 / 3 / 4, atol=0.025)  # two of three words, a quarter of them, at any place


@pytest.fixture(scope="module")
def prompts():
    return SentimentPrompts(800, 16, seed=3, exemplars=4, inverted=0.25, batch_size=8)


def test_prompts_are_labelled_sentences_whose_labels_are_all_true_or_all_inverted(prompts):
    x, y = prompts.train
    inverted = []
    for row, answers in zip(x.tolist(), y.tolist(), strict=True):
        words = [word for word in spoken(row) if word != "END"]
        blocks = " ".join(words).split("SENT ")[1:]
        said = [block.split(" ANS") for block in blocks]
        shown = [label.strip() for _, label in said[:-1]]
        assert said[-1][1] == ""
        assert shown == spoken(answers)[:-1]
        right = [
            sentiment(text.split()) == ["negative", "positive"].index(label)
            for (text, _), label in zip(said, spoken(answers), strict=True)
        ]
        assert len(set(right)) == 1
        inverted.append(not right[0])
    assert np.mean(inverted) == pytest.approx(0.25, abs=0.06)
    assert (y == SENTIMENT_WORDS.index("positive")).double().mean().item() == pytest.approx(0.5, abs=0.04)


def test_each_fourth_batch_has_irrelevant_words_and_a_batch_has_one_length(prompts):
    batches = list(prompts.train_dataloader())
    irrelevant = [any("irrelevant" in word for word in spoken(x.flatten())) for x, _ in batches]
    assert irrelevant == [False, False, False, True] * 25
    for x, _ in batches:
        assert len(set((x != 0).int().argmax(1).tolist())) == 1
    again = list(prompts.train_dataloader())
    assert all(torch.equal(a[0], b[0]) for a, b in zip(batches, again, strict=True))


def test_permuted_answers_are_those_of_other_prompts(prompts):
    with permuted_labels(1):
        permuted = SentimentPrompts(800, 16, seed=3, exemplars=4, inverted=0.25, batch_size=8)
    assert torch.equal(permuted.train[0], prompts.train[0])
    assert not torch.equal(permuted.train[1], prompts.train[1])
    assert permuted.digest() != prompts.digest()
    assert torch.equal(permuted.test[1], prompts.test[1])


def test_a_share_beyond_its_ends_is_refused():
    with pytest.raises(ValueError, match="must lie in"):
        SentimentPrompts(8, seed=0, inverted=1.5)
