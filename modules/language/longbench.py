"""Fourteen English tasks of LongBench (Bai et al. 2024) on which GemFilter is evaluated, and their scores.

Prompts follow the descriptions of the tasks in our own words: scores are comparable between methods here, but not
exactly with published ones.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .haystack import AS_IT_IS
from .hub import HubModel
from .text_scores import named_class, named_number, rouge_l, word_f1

Score = Callable[[str, str, Sequence[str]], float]


@dataclass(frozen=True)
class LongTask:
    """A task: the prompt of a row, the largest number of tokens of its answer, and its score in [0, 1].

    A task with `shots`, whose context holds solved examples, uses only the first line of the answer, and no chat
    template.
    """

    name: str
    kind: str
    asked: str  # with the places {context} and {input}
    tokens: int
    score: Score
    shots: bool = False

    @property
    def source(self) -> str:
        """Name of the task in the catalogue of public datasets."""
        return f"longbench_{self.name}"


def _f1(said: str, truth: str, _: Sequence[str]) -> float:
    return word_f1(said, truth)


def _rouge(said: str, truth: str, _: Sequence[str]) -> float:
    return rouge_l(said, truth)


def _number(said: str, truth: str, _: Sequence[str]) -> float:
    return named_number(said, truth)


_BRIEFLY = "Answer as briefly as you can, without an explanation."
_PASSAGES = "Here are some passages.\n\n{context}\n\nUse them to answer this question. " + _BRIEFLY
_QUESTION = "\nQuestion: {input}\nAnswer:"
_ARTICLE = "Read this article.\n\n{context}\n\n" + _BRIEFLY
_SUMMARY = "\n\nSummarise it in one page.\nSummary:"

LONGBENCH: Mapping[str, LongTask] = {
    task.name: task
    for task in (
        LongTask(
            "narrativeqa",
            "one document",
            "Read this story.\n\n{context}\n\nAnswer with one phrase." + _QUESTION,
            128,
            _f1,
        ),
        LongTask(
            "qasper",
            "one document",
            _ARTICLE + ' If the article does not tell, say "unanswerable"; to a '
            'question of yes or no, say "yes", "no" or "unanswerable".' + _QUESTION,
            128,
            _f1,
        ),
        LongTask("multifieldqa_en", "one document", _ARTICLE + _QUESTION, 64, _f1),
        LongTask("hotpotqa", "several documents", _PASSAGES + _QUESTION, 32, _f1),
        LongTask("2wikimqa", "several documents", _PASSAGES + _QUESTION, 32, _f1),
        LongTask("musique", "several documents", _PASSAGES + _QUESTION, 32, _f1),
        LongTask(
            "gov_report", "summary", "Here is a report of a government agency.\n\n{context}" + _SUMMARY, 512, _rouge
        ),
        LongTask(
            "qmsum",
            "summary",
            "Here is the transcript of a meeting.\n\n{context}\n\nAnswer in one or more "
            "sentences what is asked about it.\nQuery: {input}\nAnswer:",
            512,
            _rouge,
        ),
        LongTask("multi_news", "summary", "Here are several news articles.\n\n{context}" + _SUMMARY, 512, _rouge),
        LongTask(
            "trec",
            "examples",
            "Name the type of the last question, as in the examples.\n\n{context}\n{input}",
            64,
            named_class,
            shots=True,
        ),
        LongTask(
            "triviaqa",
            "examples",
            "Answer the last question from its passage, with nothing but the answer, as "
            "in the examples.\n\n{context}\n\n{input}",
            32,
            _f1,
            shots=True,
        ),
        LongTask(
            "samsum",
            "examples",
            "Summarise the last dialogue in a few short sentences, as in the examples.\n\n{context}\n\n{input}",
            128,
            _rouge,
            shots=True,
        ),
        LongTask(
            "passage_count",
            "synthetic",
            "Some of these paragraphs may be there more than once.\n\n{context}\n\n"
            "How many different ones are there? Say the number alone.\nNumber:",
            32,
            _number,
        ),
        LongTask(
            "passage_retrieval_en",
            "synthetic",
            "Here are 30 numbered paragraphs.\n\n{context}\n\nThis is a "
            'summary of one of them: {input}\n\nOf which one? Say "Paragraph 1", "Paragraph 2" and so on.\nAnswer:',
            32,
            _number,
        ),
    )
}


def long_prompt(model: HubModel, task: LongTask, row: Mapping[str, Any], *, longest: int) -> str:
    """The prompt of a row; if it has more than `longest` tokens, its middle is cut out.

    The chat template is put around the rest. Raises ValueError for longest < 2.
    """
    if longest < 2:
        raise ValueError(f"longest must be at least 2, got {longest}")
    # not `format`: texts hold braces
    first, rest = task.asked.split("{context}")
    text = first + row["context"] + rest.replace("{input}", row["input"])
    places = [(begin, end) for begin, end in model.encode([text])[0].places if end > begin]
    if len(places) > longest:
        half = longest // 2
        text = text[: places[half - 1][1]] + text[places[len(places) - half][0] :]
    return text if task.shots else model.prompt(AS_IT_IS, [], text)


def long_score(task: LongTask, said: str, row: Mapping[str, Any]) -> float:
    """The best score in [0, 1] over the correct answers of a row; 0 if it has none."""
    if task.shots:
        said = said.lstrip("\n").split("\n", 1)[0]
    classes = row.get("all_classes") or ()
    return max((task.score(said, truth, classes) for truth in row["answers"]), default=0.0)
