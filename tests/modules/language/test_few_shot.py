"""Prompts: the template, exact shares of inverted labels, and what inverting must leave alone."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from featurelab.modules.data import SENTIMENT_WORDS
from featurelab.modules.language import (
    NEWLINES,
    BinaryTexts,
    FewShotPrompts,
    Template,
    WordModel,
    inverted_labels,
    ranked_first,
    roc_area,
)
from featurelab.modules.nets import decoder

WORDS = ("negative", "positive")
MADE_UP = Template("SENT {text}", joint=" ", answer="ANS", word=" {label}", end="", between=" ")


@pytest.fixture
def model():
    net = decoder(len(SENTIMENT_WORDS), 64, width=4, heads=1, layers=1, embedding_std=0.3, seed=0)
    return WordModel(net, SENTIMENT_WORDS)


def labelled(n, kind):
    texts = [f"{kind}_{i % 12} neutral_{i // 12}" for i in range(n)]
    return BinaryTexts(texts, np.arange(n) % 2)


def made(model, **options):
    settings = {"exemplars": 6, "seed": 5, "template": MADE_UP} | options
    return FewShotPrompts(model, labelled(40, "positive"), labelled(30, "negative"), WORDS, **settings)


def test_the_template_is_that_of_the_paper():
    written = NEWLINES.prompt([("good film", "positive"), ("dull", "negative")], "a {label} of its own")
    assert written == (
        "sentence: good film\nThe answer is positive.\n\nsentence: dull\nThe answer is negative.\n\n"
        "sentence: a {label} of its own\nThe answer is"
    )
    assert NEWLINES.continued("positive") == " positive"


def read(prompt):
    blocks = prompt.split("SENT ")[1:]
    return [tuple(part.strip() for part in block.split("ANS")) for block in blocks]


@pytest.mark.parametrize("flips", range(7))
def test_exactly_so_many_labels_are_inverted_and_nothing_else(model, flips):
    plain, flipped = made(model), made(model, flips=flips)
    assert len(plain.prompts) == 30
    assert torch.equal(plain.targets, flipped.targets)
    assert plain.targets.tolist() == (np.arange(30) % 2).tolist()
    for index, (before, after) in enumerate(zip(plain.prompts, flipped.prompts, strict=True)):
        (*shots, query), (*changed, same) = read(before), read(after)
        assert query == same == (labelled(30, "negative").texts[index], "")
        assert [text for text, _ in shots] == [text for text, _ in changed]
        assert len({text for text, _ in shots}) == 6
        assert sum(a[1] != b[1] for a, b in zip(shots, changed, strict=True)) == flips
        own = dict(zip(*labelled(40, "positive"), strict=True))
        assert all(WORDS[own[text]] == word for text, word in shots)


def test_more_flips_invert_what_fewer_do():
    labels = np.array([[0, 1, 1, 0], [1, 1, 1, 1]])
    order = np.array([[2, 0, 1, 3], [3, 2, 1, 0]])
    changed = [inverted_labels(labels, k, order) != labels for k in range(5)]
    assert [c.sum(1).tolist() for c in changed] == [[k, k] for k in range(5)]
    assert all((a <= b).all() for a, b in pairwise(changed))
    assert changed[1].nonzero()[1].tolist() == [2, 3]
    with pytest.raises(ValueError, match="between 0 and 4, got 5"):
        inverted_labels(labels, 5, order)


def test_labels_at_random_are_others_each_time_and_texts_stay(model):
    plain, random, again, other = (
        made(model, **options)
        for options in ({}, {"shown": "random"}, {"shown": "random"}, {"shown": "random", "draw": 1})
    )
    assert random.prompts == again.prompts != other.prompts
    both = zip(plain.prompts, random.prompts, strict=True)
    pairs = [pair for before, after in both for pair in zip(read(before), read(after), strict=True)]
    assert all(a[0] == b[0] for a, b in pairs)
    assert 0.35 < np.mean([a[1] != b[1] for a, b in pairs if a[1]]) < 0.65


def test_prompts_that_are_too_long_are_left_out_whatever_their_labels(model):
    queries = BinaryTexts(["positive_1", "positive_1 " * 60, "positive_2"], np.array([0, 1, 1]))
    found = FewShotPrompts(model, labelled(40, "positive"), queries, WORDS, exemplars=2, seed=0, template=MADE_UP)
    assert (len(found.prompts), found.left_out, found.targets.tolist()) == (2, 1, [0, 1])
    assert found.describe()["left_out"] == 1
    with pytest.raises(ValueError, match="all 1 prompts are longer than the 64 tokens"):
        FewShotPrompts(
            model,
            labelled(40, "positive"),
            BinaryTexts(["positive_1 " * 70], np.array([1])),
            WORDS,
            exemplars=1,
            seed=0,
            template=MADE_UP,
        )


def test_the_digest_is_of_what_is_asked(model):
    same, other, flipped = made(model), made(model, seed=6), made(model, flips=1)
    assert made(model).digest() == same.digest()
    assert len({same.digest(), other.digest(), flipped.digest()}) == 3


def test_ties_share_what_is_ranked_first():
    scores = torch.tensor([[-1.0, -2.0], [-3.0, -3.0], [-5.0, -4.0]], dtype=torch.float64)
    assert ranked_first(scores, torch.tensor([0, 1, 0])).tolist() == [1.0, 0.5, 0.0]


def test_the_area_is_the_share_of_pairs_in_order_whichever_word_is_preferred():
    rng = np.random.default_rng(0)
    scores, targets = (
        torch.from_numpy(rng.integers(0, 4, (60, 2)).astype(float)),
        torch.from_numpy(rng.integers(0, 2, 60)),
    )
    gaps = (scores[:, 1] - scores[:, 0]).tolist()
    positive, negative = ([g for g, y in zip(gaps, targets.tolist(), strict=True) if y == c] for c in (1, 0))
    share = np.mean([(a > b) + (a == b) / 2 for a in positive for b in negative])
    assert roc_area(scores, targets) == pytest.approx(share)
    assert roc_area(scores + torch.tensor([7.0, 0.0]), targets) == pytest.approx(share)


def test_other_labels_and_too_few_texts_are_refused(model):
    with pytest.raises(ValueError, match="labels must be 0 and 1"):
        FewShotPrompts(
            model,
            BinaryTexts(["positive_1"] * 3, np.array([0, 1, 2])),
            labelled(3, "negative"),
            WORDS,
            exemplars=1,
            seed=0,
            template=MADE_UP,
        )
    with pytest.raises(ValueError, match="at least 41 texts as exemplars"):
        made(model, exemplars=41)
