"""The axes of a sweep: listed values, or a law to draw them from."""

import itertools
import json
import math
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from featurelab.pipelines.engine.errors import RequestError
from featurelab.pipelines.engine.experiment.config import Config, by_setting, parse_value
from featurelab.tracking.lines import quoted, shortened

LAWS = ("choice", "loguniform", "randint", "uniform")
MOST_TRIALS = 100_000  # of one sweep, so that a mistyped axis does not fill the memory

# A grid's key is a field, or several fields that vary together; its values are listed in order.
Grid = Mapping[Any, Sequence[Any]]


@dataclass(frozen=True)
class Listed:
    """Every one of the values, crossed with the other listed axes."""

    values: tuple[Any, ...]

    def __str__(self) -> str:
        return ",".join(map(_written, self.values))


@dataclass(frozen=True)
class Drawn:
    """A value drawn from `law` (uniform, loguniform, randint or choice) with its arguments.

    uniform(a, b) and loguniform(a, b) are continuous on [a, b]; randint(a, b) takes integers a <= i < b; choice(...)
    takes each value with equal probability.
    """

    law: str
    arguments: tuple[Any, ...]

    def checked(self) -> "Drawn":
        """This axis; raises `RequestError` for an unknown law, and for arguments that its law does not take."""
        numbers = all(isinstance(argument, int | float) for argument in self.arguments)
        if self.law not in LAWS or not (self.law == "choice" or numbers):
            raise RequestError(f"{quoted(str(self))} is no axis")
        return _law(self.law, self.arguments)

    def sample(self, rng: random.Random) -> Any:
        if self.law == "choice":
            return rng.choice(self.arguments)
        low, high = self.arguments
        if self.law == "randint":
            return rng.randrange(low, high)
        if self.law == "uniform":
            return rng.uniform(low, high)
        return min(max(math.exp(rng.uniform(math.log(low), math.log(high))), low), high)

    def ends(self) -> tuple[Any, ...]:
        """Values that a config must accept if it is to accept every draw."""
        if self.law == "randint":
            return (self.arguments[0], self.arguments[1] - 1)
        return self.arguments

    def __str__(self) -> str:
        return f"{self.law}({','.join(map(_written, self.arguments))})"


Axis = Listed | Drawn


def loguniform(low: float, high: float) -> Drawn:
    return _law("loguniform", (low, high))


def uniform(low: float, high: float) -> Drawn:
    return _law("uniform", (low, high))


def randint(low: int, high: int) -> Drawn:
    return _law("randint", (low, high))


def choice(*values: Any) -> Drawn:
    return _law("choice", values)


def _law(law: str, arguments: tuple[Any, ...]) -> Drawn:
    written = shortened(f"{law}({','.join(map(_written, arguments))})", 80)
    if law == "choice":
        if not arguments:
            raise RequestError(f"{written}: choice needs at least one value")
        return Drawn(law, arguments)
    if len(arguments) != 2 or not arguments[0] < arguments[1] or not math.isfinite(arguments[1] - arguments[0]):
        raise RequestError(f"{written}: {law} needs two finite numbers, the lower one first")
    if law == "loguniform" and arguments[0] <= 0:
        raise RequestError(f"{written}: loguniform needs numbers above 0")
    return Drawn(law, arguments)


def parse_axes(pairs: Iterable[str], model: type[Config]) -> dict[str, Axis]:
    """`["lr=0.1,0.3", "width=choice(64,128)"]` as axes by setting.

    Raises `RequestError` as `by_setting` and `parse_axis` do.
    """
    axes: dict[str, Axis] = {}
    for name, domain in by_setting(pairs, model, "key=DOMAIN").items():
        try:
            axes[name] = parse_axis(domain)
        except RequestError as error:
            raise RequestError(f"{name}: {error}") from None
    return axes


def parse_axis(text: str) -> Axis:
    """`0.1,0.3` as `Listed`, `loguniform(1e-4,1e-1)` and its like as `Drawn`; `RequestError` for anything else."""
    call = re.fullmatch(r"\s*([A-Za-z_]+)\((.*)\)\s*", text, re.DOTALL)
    if call is None:
        if re.search(r"[()]", text):
            raise RequestError(f"{quoted(text)} is not a domain: write 0.1,0.3 or loguniform(1e-4,1e-1)")
        values = tuple(part.strip() for part in _split(text))
        if not values or not all(values):
            raise RequestError(
                f"{quoted(text)} has an empty value: write the values with commas between, as 0.1,0.3,1.0"
            )
        return Listed(tuple(map(parse_value, values)))
    law, inside = call.groups()
    if law not in LAWS:
        raise RequestError(f"unknown domain {quoted(law)}: there is {', '.join(LAWS)}")
    parts = [part.strip() for part in _split(inside)]
    if law == "choice":
        if not all(parts):
            raise RequestError(f"{quoted(text)} has an empty value")
        return _law(law, tuple(map(parse_value, parts)))
    kind = int if law == "randint" else float
    try:
        return _law(law, tuple(kind(part) for part in parts))
    except (ValueError, OverflowError):
        wanted = "whole numbers" if law == "randint" else "numbers"
        raise RequestError(f"{quoted(text)}: {law} needs two {wanted}") from None


def _written(value: Any) -> str:
    """A value as `parse_value` reads it."""
    return json.dumps(value) if isinstance(value, list | tuple) else str(value)


def _split(text: str) -> list[str]:
    """Split at commas that are not inside a [list]."""
    parts, depth, start = [], 0, 0
    for mark in re.finditer(r"[,\[\]]", text):
        depth += (mark[0] == "[") - (mark[0] == "]")
        if mark[0] == "," and depth <= 0:
            parts.append(text[start : mark.start()])
            start = mark.end()
    return [*parts, text[start:]]


def expand(grid: Grid) -> list[dict[str, Any]]:
    """Every point of a grid as field values, the last axis varying fastest."""
    axes = []
    for key, values in grid.items():
        names = (key,) if isinstance(key, str) else key
        axes.append([dict(zip(names, (v,) if isinstance(key, str) else v, strict=True)) for v in values])
    return [{k: v for part in point for k, v in part.items()} for point in itertools.product(*axes)]


def along(grid: Grid) -> list[dict[str, Any]]:
    """The first point of a grid, and those that differ from it in one axis: every value, without every crossing."""
    first = {key: values[:1] for key, values in grid.items()}
    rest = [expand(first | {key: values[1:]}) for key, values in grid.items()]
    return [*expand(first), *itertools.chain.from_iterable(rest)]


def without_seeds(grid: Grid) -> Grid:
    """The grid at its first seed alone."""
    return {axis: values[:1] if axis == "seed" else values for axis, values in grid.items()}


def among(base: Config, grid: Grid, other: Config, other_grid: Grid) -> bool:
    """Whether each trial of `grid` around `base` is one of `other_grid` around `other`."""
    points, others = expand(grid), expand(other_grid)
    names = {name: None for point in (*points[:1], *others[:1]) for name in point}
    if base.model_copy(update=names) == other.model_copy(update=names):
        with suppress(TypeError):  # a list has no hash
            # the values as written first: figures that read a thousand trials would build each of their configs
            if _values(base, points, names) <= _values(other, others, names):
                return True
    return set(base.each(points)) <= set(other.each(others))


def _values(base: Config, points: Iterable[Mapping[str, Any]], names: Iterable[str]) -> set[tuple[Any, ...]]:
    ours = [(name, getattr(base, name)) for name in names]
    return {tuple(point.get(name, value) for name, value in ours) for point in points}


def lay_out(base: Config, axes: Mapping[str, Axis], samples: int, seed: int) -> list[Config]:
    """The configs of a sweep: the listed axes crossed, and for each crossing `samples` draws of the others.

    The draws depend on `seed`, the axes and nothing else. Raises `RequestError` where `base` does not accept a value.
    """
    for name, axis in axes.items():
        for value in axis.values if isinstance(axis, Listed) else axis.ends():
            base.but(**{name: value})
    listed = {name: axis.values for name, axis in axes.items() if isinstance(axis, Listed)}
    drawn = {name: axis for name, axis in axes.items() if isinstance(axis, Drawn)}
    number = math.prod(map(len, listed.values())) * samples
    if number > MOST_TRIALS:
        written = str(number) if number < 10**18 else "more than 1e18"
        raise RequestError(f"a sweep of {written} trials is too large: it may have {MOST_TRIALS}")
    rng = random.Random(seed)
    configs = []
    for point in expand(listed):
        for _ in range(samples):
            configs.append(base.but(**point, **{name: axis.sample(rng) for name, axis in drawn.items()}))
    return list(dict.fromkeys(configs))
