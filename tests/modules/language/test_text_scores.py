"""Scores of answers against slow versions, examples worked by hand, and the ends of their range."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from featurelab.modules.language import (
    common_subsequence,
    named_class,
    named_number,
    plain_words,
    rouge_l,
    rouge_n,
    word_f1,
)

words = st.lists(st.sampled_from(["cat", "dog", "sat", "mat", "x1"]), max_size=9)


def slow_common(first, second):
    """By recursion over both ends."""

    @cache
    def at(i, j):
        if not i or not j:
            return 0
        return at(i - 1, j - 1) + 1 if first[i - 1] == second[j - 1] else max(at(i - 1, j), at(i, j - 1))

    return at(len(first), len(second))


def slow_f1(first, second, n=1):
    """By crossing out, one by one."""
    left = [tuple(second[i : i + n]) for i in range(len(second) - n + 1)]
    whole, shared, all_right = len(first) - n + 1, 0, len(left)
    for i in range(whole):
        if (run := tuple(first[i : i + n])) in left:
            left.remove(run)
            shared += 1
    return 2 * (p := shared / whole) * (r := shared / all_right) / (p + r) if shared else 0.0


@given(words, words)
def test_overlaps_are_those_of_slow_versions(first, second):
    a, b = " ".join(first), " ".join(second)
    length = slow_common(tuple(first), tuple(second))
    assert common_subsequence(first, second) == length
    for n in (1, 2, 3):
        assert rouge_n(a, b, n) == pytest.approx(slow_f1(first, second, n))
    assert word_f1(a, b) == pytest.approx(slow_f1(first, second))
    total = len(first) + len(second)
    assert rouge_l(a, b) == pytest.approx(2 * length / total if length else 0)
    assert rouge_l(a, b) <= rouge_n(a, b) + 1e-12, "a common subsequence shares its words"
    assert rouge_n(a, b, 2) == rouge_n(b, a, 2)
    if first:
        assert rouge_l(a, a) == rouge_n(a, a) == word_f1(a, a) == 1


def test_what_counts_as_a_word():
    assert plain_words("The U.S. won a  'Cup', an end") == ["us", "won", "cup", "end"]
    assert word_f1("It is the Eiffel Tower!", "eiffel tower") == pytest.approx(2 * 2 / (4 + 2))
    assert rouge_n("The cat, sat.", "the Cat sat") == 1
    assert word_f1("the", "a") == rouge_l("", "cat") == rouge_n("cat", "") == 0
    with pytest.raises(ValueError, match="n must be at least 1"):
        rouge_n("a", "a", 0)


def test_classes_and_numbers():
    classes = ["Date", "Date of birth", "City", "Country"]
    assert named_class("I say City.", "City", classes) == 1
    assert named_class("City or Country", "City", classes) == 0.5
    assert named_class("Date of birth", "Date of birth", classes) == 1, "a part of the right name is not named besides"
    assert named_class("Date of birth", "Date", classes) == 0.5
    assert named_class("Country", "City", classes) == named_class("", "City", classes) == 0
    assert named_number("Paragraph 12", "Paragraph 12") == named_number("12 of them", "12") == 1
    assert named_number("3, 12 or 12", "Paragraph 12") == pytest.approx(2 / 3)
    assert named_number("none", "7") == named_number("17", "7") == 0
    with pytest.raises(ValueError, match="must contain a number"):
        named_number("7", "seven")


def test_long_answers_take_no_time():
    rng = np.random.default_rng(0)
    first, second = (" ".join(map(str, rng.integers(0, 500, 2000))) for _ in range(2))
    assert 0 < rouge_l(first, second) < rouge_n(first, second) < 1
