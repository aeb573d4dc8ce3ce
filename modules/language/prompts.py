"""Prompts of labelled blocks, as running text or as the turns of a conversation if a model has a chat template."""

from dataclasses import dataclass
from typing import NamedTuple


class Turn(NamedTuple):
    """A question and its answer; for the query, how its answer begins."""

    asked: str
    answered: str


@dataclass(frozen=True)
class Template:
    """How a text and its label are written: `question`, `joint`, `answer`, `end`, and `between` two blocks.

    The default is that of fig. 5.1 of Shi, Wei, Xu, Liang 2024: "sentence: <x>", a line break, "The answer is <label>."
    """

    question: str = "sentence: {text}"
    joint: str = "\n"
    answer: str = "The answer is"
    word: str = " {label}"
    end: str = "."
    between: str = "\n\n"

    def turns(self, exemplars: list[tuple[str, str]], query: str) -> list[Turn]:
        """One turn for each (text, label word), and the query's, whose answer stops before the label."""
        shown = [Turn(self._asked(text), self.answer + self.continued(word) + self.end) for text, word in exemplars]
        return [*shown, Turn(self._asked(query), self.answer)]

    def prompt(self, exemplars: list[tuple[str, str]], query: str) -> str:
        """The turns as running text, which ends where the label word of the query follows."""
        return self.between.join(self.joint.join(turn) for turn in self.turns(exemplars, query))

    def continued(self, word: str) -> str:
        """A label word as written after a prompt."""
        return self.word.replace("{label}", word)

    def _asked(self, text: str) -> str:
        return self.question.replace("{text}", text)


NEWLINES = Template()
