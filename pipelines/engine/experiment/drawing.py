"""How figures look: one style, curves with the range over seeds, heat maps, and the paper's own numbers drawn in."""

import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from featurelab.pipelines.engine.libraries import mpl, np

if TYPE_CHECKING:
    from featurelab.pipelines.engine.experiment.results import Results

CATEGORIES = ["#3566a8", "#d1672c", "#3f8f5b", "#8a4f9e", "#b08d1e", "#5b6770"]  # colours of unordered series
PAPER = "#222222"  # the paper's own numbers
NULL = "#8a9299"  # what no effect, or chance, would give


@contextmanager
def style() -> Iterator[None]:
    """The look of every figure: quiet axes, type that can be read at half size."""
    settings = {
        "font.size": 9,
        "axes.titlesize": 9.5,
        "figure.titlesize": 11,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,  # the grid behind bars, too
        "grid.color": "#e3e6ea",
        "grid.linewidth": 0.6,
        "lines.linewidth": 1.6,
        "legend.frameon": False,
        "legend.fontsize": 8,
        "svg.fonttype": "none",
        "savefig.dpi": 160,
        "axes.prop_cycle": mpl.cycler(color=CATEGORIES),
    }
    with mpl.rc_context(settings):
        yield


def shades(count: int) -> list[Any]:
    """Colours for `count` ordered values, dark to light."""
    return [mpl.colormaps["viridis"](x) for x in np.linspace(0.0, 0.85, max(count, 1))]


def curves(
    axis: Any,
    results: "Results",
    metric: str,
    across: str,
    *,
    where: Mapping[str, Any] | None = None,
    label: str = "{name} = {value}",
    scaled: bool = False,
    linestyle: str = "-",
) -> None:
    """One line for each value of the field `across`: the mean over seeds, with their range as a band.

    `scaled` divides the values of each trial by their largest.
    """
    values = results.values(across)
    for value, colour in zip(values, shades(len(values)), strict=True):
        table = results.curves(metric, **{across: value}, **(where or {}))
        if scaled:
            table = table / table.max()
        name = label.format(name=symbol(across), value=_short(value)) if label else None
        band(axis, table, color=colour, label=name, linestyle=linestyle)


def points(
    axis: Any, results: "Results", metric: str, x: str, *, where: Mapping[str, Any] | None = None, **look: Any
) -> None:
    """The final value of a metric against a config field: mean over seeds, bars from the least to the greatest."""
    where = where or {}
    xs = sorted(value for value in results.values(x))
    bars(axis, [results.finals(metric, **{x: value}, **where) for value in xs], xs, **look)


def band(axis: Any, table: Any, x: Any = None, *, color: Any, shade: float = 0.18, **look: Any) -> None:
    """The mean of a table's columns, one a trial, with their range as a band: against its index, or against `x`."""
    rows = np.asarray(table, dtype=float)
    x = table.index if x is None else x
    axis.plot(x, rows.mean(axis=1), color=color, **look)
    if rows.shape[1] > 1:
        axis.fill_between(x, rows.min(axis=1), rows.max(axis=1), color=color, alpha=shade, linewidth=0)


def bars(axis: Any, table: Any, x: Any = None, **look: Any) -> None:
    """The mean of a table's columns, one a trial, with bars from the least to the greatest: see `band`."""
    rows = np.asarray(table, dtype=float)
    mean = rows.mean(axis=1)
    ends = np.array([mean - rows.min(axis=1), rows.max(axis=1) - mean]).clip(min=0)
    look = {"marker": "o", "markersize": 3.5, "capsize": 2} | look
    axis.errorbar(table.index if x is None else x, mean, yerr=ends, **look)


def paper_level(axis: Any, value: float, label: str | None = "paper", *, vertical: bool = False, **look: Any) -> None:
    """A dashed line at the paper's own number; `vertical` for a number on the x axis."""
    _level(axis, value, label, vertical, {"color": PAPER, "linestyle": "--"} | look)


def null_level(axis: Any, value: float, label: str | None = None, *, vertical: bool = False, **look: Any) -> None:
    """A dotted grey line at what chance, or no effect, would give; `vertical` for a number on the x axis."""
    _level(axis, value, label, vertical, {"color": NULL, "linestyle": ":"} | look)


def bound_level(axis: Any, value: float, label: str | None = None, *, vertical: bool = False, **look: Any) -> None:
    """A line of dashes and dots at a bound, a tolerance or a prediction; `vertical` for a number on the x axis."""
    _level(axis, value, label, vertical, {"color": PAPER, "linestyle": "-."} | look)


def legend_below(axes: Any, columns: int = 4, **options: Any) -> None:
    """One legend below: of one axis below its label; of an array of axes below the figure, each label once."""
    if hasattr(axes, "legend"):
        axes.legend(**{"loc": "upper center", "bbox_to_anchor": (0.5, -0.2), "ncols": columns} | options)
        return
    handles: dict[str, Any] = {}
    for axis in np.ravel(axes):
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    place = {"loc": "outside lower center", "ncols": columns} | options
    np.ravel(axes)[0].figure.legend(list(handles.values()), list(handles), **place)


def legend_beside(axis: Any, **options: Any) -> None:
    """A legend to the right of an axis, for more lines than fit into it."""
    axis.legend(**{"loc": "center left", "bbox_to_anchor": (1.0, 0.5)} | options)


def subtitle(figure: Any, text: str) -> None:
    """A remark in small type between a figure's title and its axes, for which the figure grows.

    The figure is laid out by constrained layout, which leaves the place free.
    """
    width, height = figure.get_size_inches()
    lines = textwrap.wrap(text, max(int(width * 15), 30))
    room = 0.05 + 0.13 * len(lines)
    figure.set_size_inches(width, height + room)
    figure.get_layout_engine().set(rect=(0, 0, 1, height / (height + room)))
    place = 1 - 0.27 / (height + room)  # below one line of title
    figure.text(0.5, place, "\n".join(lines), fontsize=7.5, color="0.4", ha="center", va="top")


def _level(axis: Any, value: float, label: str | None, vertical: bool, look: Mapping[str, Any]) -> None:
    draw = axis.axvline if vertical else axis.axhline
    draw(value, label=label, **{"linewidth": 1.0, "zorder": 1.5} | dict(look))


def heatmap(axis: Any, matrix: "np.ndarray", title: str, note: str = "") -> None:
    """A matrix as an image, black at the least and white at the greatest entry of its own, so that structure shows."""
    axis.imshow(matrix, cmap="magma", interpolation="nearest")
    axis.set(title=title, xticks=[], yticks=[])
    axis.grid(visible=False)
    if note:
        axis.set_xlabel(note)


def symbol(field: str) -> str:
    """A config field as papers write it."""
    return {"init_scale": "$s_0$", "decay": "α", "balance": "γ", "lr": "η", "width": "k", "rank": "r"}.get(field, field)


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
