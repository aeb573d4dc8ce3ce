"""Figures, tables and theorems by their numbers: as a label, in order, and as somebody types them."""

import itertools
import re
from collections.abc import Sequence

# of a chapter or an appendix, perhaps with the letter of a panel: "9.5", "F.13", "H", "2a"
NUMBER = r"(?:[A-Z]\.)?\d+(?:\.\d+)*[a-z]?"
NUMBERED = re.compile(rf"([A-Za-z]+)\.?\s*({NUMBER}|[A-Z])")
KINDS = {
    "Fig.": ("Figs.", "figure", "figures"),
    "Table": ("Tables",),
    "Thm.": ("Thms.", "theorem", "theorems"),
    "Lemma": ("Lemmas",),
    "Cor.": ("Cors.", "corollary", "corollaries"),
    "Prop.": ("Props.", "proposition", "propositions"),
    "Def.": ("Defs.", "definition", "definitions"),
    "Eq.": ("Eqs.", "equation", "equations"),
    "Note": ("Notes",),
    "Sec.": ("Secs.", "section", "sections"),
    "App.": ("Apps.", "appendix"),
    "Ch.": ("Chs.", "chapter", "chapters"),
    "Algorithm": ("Algorithms",),
    "Network": ("Networks",),
}
WORDS = {word.lower().rstrip("."): kind for kind, others in KINDS.items() for word in (kind, *others)}
FEW = 2  # this many numbers in a row are written out: "4, 5", but "4-6"


def kind_of(word: str) -> str | None:
    """The kind that a word stands for: "Figure", "fig." and "Figs" are "Fig."; None for any other word."""
    return WORDS.get(word.lower().rstrip("."))


def parts(entry: str) -> tuple[str, str]:
    """The kind and the number of one entry: "Fig. 9.5" is ("Fig.", "9.5"). Raises ValueError for anything else."""
    match = NUMBERED.fullmatch(entry)
    kind = kind_of(match[1]) if match else None
    if match is None or kind is None or entry != f"{kind} {match[2]}":
        raise ValueError(f"{entry!r} is not a number such as 'Fig. 9.5'; kinds are {', '.join(KINDS)}")
    return kind, match[2]


def label(entries: Sequence[str]) -> str:
    """All entries in one line, neighbours joined: ("Fig. 4", "Fig. 5", "Fig. 6", "Table 2") is "Figs. 4-6, Table 2"."""
    groups = []
    for kind, group in itertools.groupby(map(parts, entries), key=lambda entry: entry[0]):
        numbers = [number for _, number in group]
        groups.append(f"{KINDS[kind][0] if len(numbers) > 1 else kind} {', '.join(_joined(numbers))}")
    return ", ".join(groups)


def wanted(text: str) -> tuple[str | None, str] | None:
    """What somebody looks for: "9.5" is (None, "9.5"), "figure 9.5" ("Fig.", "9.5"); None where it is no number."""
    text = text.strip()
    if re.fullmatch(NUMBER, text):
        return None, text
    match = NUMBERED.fullmatch(text)
    kind = kind_of(match[1]) if match else None
    return (kind, match[2]) if match and kind else None


def matches(entry: str, kind: str | None, number: str) -> bool:
    """Whether an entry is what is looked for; a figure matches its panels: "Fig. 2" finds "Fig. 2a"."""
    own_kind, own = parts(entry)
    return kind in (None, own_kind) and (own == number or (own[:-1] == number and own[-1].islower()))


def order(entry: str) -> tuple[bool, tuple[tuple[int, str], ...]]:
    """A key for sorting: figures first, "Fig. 2" before "Fig. 10", numbers before the letters of appendices."""
    kind, number = parts(entry)
    pieces = re.findall(r"\d+|[A-Za-z]+", number)
    return kind != "Fig.", tuple((int(piece), "") if piece.isdigit() else (10**6, piece) for piece in pieces)


def _joined(numbers: Sequence[str]) -> list[str]:
    """Numbers in their order, three or more that follow one another as a range."""
    joined: list[str] = []
    for _, run in itertools.groupby(enumerate(numbers), key=lambda pair: _stem(pair[1], pair[0])):
        members = [number for _, number in run]
        joined += members if len(members) <= FEW else [f"{members[0]}-{members[-1]}"]
    return joined


def _stem(number: str, place: int) -> tuple[str, int | str]:
    """The same for numbers that follow one another: what stands before the last digits, and the last less its place."""
    match = re.fullmatch(r"(.*?)(\d+)", number)
    return (match[1], int(match[2]) - place) if match else (number, place)
