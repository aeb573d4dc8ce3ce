"""Needles in texts and the tasks of LongBench: where things stand in a prompt, how long it is, how it is scored."""

from types import SimpleNamespace

import pytest
import torch

from featurelab.modules.data import available_datasets
from featurelab.modules.language import (
    DOLORES_PARK,
    LONGBENCH,
    Needle,
    decoded_answer,
    hide_needle,
    load_model,
    long_prompt,
    long_score,
    needle_score,
)

pytest.importorskip("transformers")
SENTENCES = [f"Film number {n} was good." if n % 3 else f"Was number {n} dull? Yes!" for n in range(60)]
FILLER = " ".join(SENTENCES)
NEEDLE = Needle("the dull number is 7.", "Which number is dull?", "The dull number is 7.")


@pytest.fixture(scope="module", params=["plain", "chat"])
def model(request, llama, chat_llama):
    return load_model(str(llama if request.param == "plain" else chat_llama))


@pytest.mark.parametrize("length", [120, 300])
@pytest.mark.parametrize("depth", [0, 0.25, 0.5, 0.77, 1])
def test_a_needle_stands_between_two_sentences_at_its_depth(model, length, depth):
    found = hide_needle(model, FILLER, NEEDLE, length=length, depth=depth)
    assert length - 12 <= len(found.ids) <= length, "filler takes what is left"
    assert found.ids == model.encode([found.text])[0].ids
    before, _, after = found.text.partition(NEEDLE.sentence)
    assert after
    body = before.rpartition("[user] ")[2].removeprefix("<s>")
    assert body.strip() == "" or body.rstrip()[-1] in ".!?"
    first, last = found.needle
    shown = model.tokenizer.decode(found.ids[first:last])
    assert NEEDLE.sentence in shown
    assert len(shown.strip()) <= len(NEEDLE.sentence) + 3
    room = len(found.ids) - (last - first)
    longest = max(len(ids) for ids, _ in model.encode(SENTENCES))
    head = len(model.encode([found.text[: found.text.index("Was number 0") if depth else None]])[0].ids) if depth else 0
    tail = len(model.encode(["\n\nAnswer from the text above alone, in one sentence. Which number is dull?\n"])[0].ids)
    wanted = head + depth * (room - head - tail)
    assert depth == 0 or wanted - longest - 25 <= first <= wanted + 25
    assert NEEDLE.question in after


def test_filler_that_is_short_is_repeated_and_none_is_refused(model):
    found = hide_needle(model, "One good film.", NEEDLE, length=150, depth=0.5)
    assert found.text.count("One good film.") > 3
    for filler, options, said in (
        ("  ", {"length": 100, "depth": 0.5}, "filler must not be empty"),
        (FILLER, {"length": 100, "depth": 1.5}, "depth must lie"),
        (FILLER, {"length": 40, "depth": 0.5}, "leaves no room"),
    ):
        with pytest.raises(ValueError, match=said):
            hide_needle(model, filler, NEEDLE, **options)


def test_an_answer_is_what_the_decoder_writes(model):
    asked = {}

    def generate(ids, *, max_new_tokens, stop):
        asked.update(ids=ids, tokens=max_new_tokens, stop=stop)
        return SimpleNamespace(tokens=torch.tensor([[*model.tokenizer("a good film")["input_ids"], stop]]))

    said = decoded_answer(model, SimpleNamespace(generate=generate), "a dull film", tokens=9)
    assert said == "a good film"
    assert asked["ids"].tolist() == [model.encode(["a dull film"])[0].ids]
    assert (asked["tokens"], asked["stop"]) == (9, model.tokenizer.eos_token_id)


def test_the_score_of_a_needle_is_of_the_first_line():
    assert needle_score("\n" + DOLORES_PARK.answer + "\nWhat else?", DOLORES_PARK) == 1
    assert needle_score("", DOLORES_PARK) == needle_score("Nothing.", DOLORES_PARK) == 0
    assert 0 < needle_score("Eat a sandwich in Dolores Park.", DOLORES_PARK) < 1


def test_there_are_the_fourteen_english_tasks_and_each_has_a_source():
    assert len(LONGBENCH) == 14
    kinds = [task.kind for task in LONGBENCH.values()]
    assert {kind: kinds.count(kind) for kind in kinds} == {
        "one document": 3,
        "several documents": 3,
        "summary": 3,
        "examples": 3,
        "synthetic": 2,
    }
    names = {entry.name for entry in available_datasets()}
    assert {task.source for task in LONGBENCH.values()} <= names
    assert all("{context}" in task.asked for task in LONGBENCH.values())


@pytest.mark.parametrize("name", LONGBENCH)
def test_prompts_hold_their_rows_and_long_ones_lose_their_middle(model, name):
    task = LONGBENCH[name]
    row = {"context": "{input} good. " + FILLER, "input": "is {context} dull?", "answers": ["7"], "all_classes": None}
    whole = long_prompt(model, task, row, longest=10_000)
    assert row["context"] in whole
    assert (row["input"] in whole) == ("{input}" in task.asked)
    assert ("[user]" in whole) == (model.chat and not task.shots)
    cut = long_prompt(model, task, row, longest=100)
    assert 90 <= len(model.encode([cut])[0].ids) <= 100 + (30 if model.chat else 2)
    begin = cut.rpartition("[user] ")[2]
    assert whole.rpartition("[user] ")[2].startswith(begin[:40])
    ends = [text.rstrip().removesuffix("[assistant]").rstrip() for text in (whole, cut)]
    assert ends[0].endswith(ends[1][-30:])
    with pytest.raises(ValueError, match="longest must be at least 2"):
        long_prompt(model, task, row, longest=1)


def test_scores_are_the_best_over_answers_and_examples_count_to_the_end_of_the_line():
    row = {"answers": ["Paris", "the city of Paris"], "all_classes": None}
    assert long_score(LONGBENCH["hotpotqa"], "city of Paris", row) == 1
    assert long_score(LONGBENCH["triviaqa"], "\nParis\nPassage: more", row) == 1
    assert long_score(LONGBENCH["hotpotqa"], "Paris\nPassage: more", row) < 1
    assert long_score(LONGBENCH["trec"], "City\nDate", {"answers": ["City"], "all_classes": ["City", "Date"]}) == 1
    assert long_score(LONGBENCH["passage_retrieval_en"], "Paragraph 3", {"answers": ["Paragraph 3"]}) == 1
    assert long_score(LONGBENCH["gov_report"], "a b c", {"answers": ["a x c"]}) == pytest.approx(4 / 6)
    assert long_score(LONGBENCH["qasper"], "yes", {"answers": []}) == 0
