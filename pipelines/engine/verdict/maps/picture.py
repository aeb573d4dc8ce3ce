"""The picture of one claim on a map: a square for each cell, coloured by the verdict, with the measured value in it."""

import itertools
import json
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from featurelab.pipelines.engine.experiment.claims import STATUSES, Verdict
from featurelab.tracking.numbers import measurement, number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Blue and orange can be told apart by everyone; the marks say the same without colour.
COLOURS = {"holds": "#9cc9ec", "fails": "#f4a860", "undecided": "#e9e6f3", "untested": "#ffffff"}
MARKS = {"holds": "✓", "fails": "✕", "undecided": "?", "untested": "–"}
HATCHES = {"untested": "////"}
MOST_PARTS = 3  # of a measurement with several parts, that a square has room for
SQUARE = (0.25, 0.95)  # inches, the smallest and the largest
WIDE = 13.0  # inches that a row of squares takes at most, unless they would be too small


def picture(
    title: str, axes: Sequence[str], configs: Sequence[Mapping[str, Any]], verdicts: Sequence[Verdict]
) -> "Figure":
    """Squares for these cells: the first axis runs right, the second up, further ones across small panels."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    values = {axis: list({_text(c[axis]): c[axis] for c in configs}.values()) for axis in axes}
    x, y, further = axes[0], axes[1] if len(axes) > 1 else "", list(axes[2:])
    across, down = further[:1], further[1:]
    columns = list(itertools.product(*(values[axis] for axis in across)))
    rows = list(itertools.product(*(values[axis] for axis in down)))
    wide, high = len(values[x]), len(values[y]) if y else 1
    side = min(max(WIDE / (wide * len(columns)), SQUARE[0]), SQUARE[1])
    tall = SQUARE[1] * 0.75 if side > 0.6 else SQUARE[1]
    size = (
        max(0.9 + len(columns) * (wide * side + 0.35), 4.6),
        1.75 + len(rows) * (high * tall + 0.25 + 0.2 * len(further)),
    )
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(len(rows), len(columns), squeeze=False, sharex=True, sharey=True)
    for (row, below), (column, beside) in itertools.product(enumerate(rows), enumerate(columns)):
        here = dict(zip(down, below, strict=True)) | dict(zip(across, beside, strict=True))
        inside = [
            (config, verdict)
            for config, verdict in zip(configs, verdicts, strict=True)
            if all(_text(config[axis]) == _text(value) for axis, value in here.items())
        ]
        panel = panels[row, column]
        for config, verdict in inside:
            place = (_index(values[x], config[x]), _index(values[y], config[y]) if y else 0)
            _square(panel, place, verdict, side)
        panel.set_xticks(range(wide), [_text(value) for value in values[x]], rotation=90 if side < 0.5 else 0)
        panel.set_yticks(range(high), [_text(value) for value in values[y]] if y else [""])
        panel.set(xlim=(-0.5, wide - 0.5), ylim=(-0.5, high - 0.5))
        panel.set_xlabel(x if row == len(rows) - 1 else "")
        panel.set_ylabel(y if column == 0 else "")
        panel.set_title("\n".join(f"{axis} = {_text(value)}" for axis, value in here.items()))
        panel.grid(False)
        panel.tick_params(length=0)
        panel.spines[:].set_visible(False)
    present = [status for status in STATUSES if any(verdict.status == status for verdict in verdicts)]
    look: dict[str, Any] = {"edgecolor": "#8a9299", "linewidth": 0.6}
    handles = [
        Patch(facecolor=COLOURS[status], hatch=HATCHES.get(status), label=f"{MARKS[status]} {status}", **look)
        for status in present
    ]
    expected = number(verdicts[0].expected) if verdicts else "-"
    legend = figure.legend(
        handles=handles, loc="outside lower center", ncols=len(handles), title=f"measured value; expected: {expected}"
    )
    legend.get_title().set_fontsize(8)
    figure.suptitle("\n".join(textwrap.wrap(title, max(int(size[0] * 12), 30))))
    return figure


def _square(panel: Any, place: tuple[int, int], verdict: Verdict, side: float) -> None:
    from matplotlib.patches import Rectangle

    corner = (place[0] - 0.47, place[1] - 0.47)
    look: dict[str, Any] = {
        "facecolor": COLOURS[verdict.status],
        "hatch": HATCHES.get(verdict.status),
        "linewidth": 0.6,
    }
    panel.add_patch(Rectangle(corner, 0.94, 0.94, edgecolor="#b9c0c7", **look))
    measured = [
        f"{part} {text}".strip() for part, text in measurement(verdict.measured, verdict.ci, None)[0].items()
    ] or ["not measured"]
    more = ["…"] * (len(measured) > MOST_PARTS)
    narrow = side < 0.6
    lines = [MARKS[verdict.status], *measured[:MOST_PARTS], *more]
    panel.text(
        *place,
        " ".join(lines[:2]) if narrow else "\n".join(lines),
        ha="center",
        va="center",
        rotation=90 if narrow else 0,
        fontsize=8.5 if len(lines) == 2 and max(map(len, lines)) < 10 and not narrow else 6.5,
        color="#1c2128",
        bbox={"facecolor": COLOURS[verdict.status], "edgecolor": "none", "pad": 1.0},
    )


def _index(values: Sequence[Any], value: Any) -> int:
    return [_text(each) for each in values].index(_text(value))


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return value if isinstance(value, str) else json.dumps(value)
