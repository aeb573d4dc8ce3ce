"""Decoders that read a whole sentence as one token."""

import numpy as np
import pytest
import torch

from featurelab.modules import data, language

SENTENCES = ["a good film", "a dull film", "good good", "unheard"]


@pytest.fixture
def model():
    return language.sentence_model(
        ("negative", "positive"), SENTENCES, known=3, least=2, longest=6, width=8, heads=2, layers=1,
        embedding_std=0.3, seed=0,
    )  # fmt: skip


def test_a_sentence_is_the_scaled_sum_of_the_words_that_are_known(model):
    (encoded,) = model.encode(["a good film\npositive\ngood good\n"])
    assert encoded.ids == [3, 2, 5]
    assert [("a good film\npositive\ngood good\n")[slice(*place)] for place in encoded.places] == [
        "a good film",
        "positive",
        "good good",
    ]
    tokens = model.net.tokens.detach()  # padding, two labels, then a, film, good
    assert len(tokens) == 6
    vectors = model.net.vectors(torch.tensor([[3, 2, 5, 4, 6]]))[0]
    torch.testing.assert_close(vectors[0], tokens[[3, 4, 5]].sum(0) / 3**0.5)
    torch.testing.assert_close(vectors[1], tokens[2])
    torch.testing.assert_close(vectors[2], 2 * tokens[5] / 2**0.5)
    torch.testing.assert_close(vectors[3], tokens[[3, 4]].sum(0) / 2**0.5)
    assert not vectors[4].any(), "no word of it is known"
    with pytest.raises(ValueError, match="'a film' is neither a label nor"):
        model.encode(["a film\n"])


def test_label_words_are_scored_as_the_label_tokens_and_padding_changes_nothing(model):
    shots = language.LINES.prompt([("a good film", "positive")], "a dull film")
    alone = language.LINES.prompt([], "good good")
    scores = language.word_scores(model, [shots, alone], ("negative", "positive"))
    for text, row in zip((shots, alone), scores, strict=True):
        ids = torch.tensor([model.encode([text])[0].ids])
        expected = model.net(ids)[0, -1].double().log_softmax(-1)[[1, 2]]
        torch.testing.assert_close(row, expected.detach(), rtol=1e-5, atol=1e-6)


def test_prompts_alternate_sentences_and_labels_all_inverted_or_none():
    labels = np.array([0, 1, 1, 0]), np.array([1, 0])
    task = data.SentencePrompts(labels, 400, 40, seed=5, exemplars=3, inverted=0.25)
    for (x, y), own, first in ((task.train, labels[0], 3), (task.test, labels[1], 7)):
        assert x.shape[1] == 7
        sentences, shown = x[:, ::2].long() - first, y - 1
        assert torch.equal(x[:, 1::2].long(), y[:, :-1])
        same = shown == torch.from_numpy(own)[sentences]
        assert torch.equal(same.all(1), same.any(1))
        if len(x) == 400:
            assert 0.15 < (~same[:, 0]).float().mean() < 0.35
    with pytest.raises(ValueError, match="inverted"):
        data.SentencePrompts(labels, 4, seed=0, inverted=1.5)
