"""What was found of each claim, by scale: `known.toml` beside the figures of a system.

    [spectra_4.c05_neurons_have_one_frequency]
    unspecific = "why the claim holds under a control too"

    [spectra_4.c05_neurons_have_one_frequency.laptop]
    status = "fails"
    reason = "why"
    measured = {trained = 0.95, "over random" = 1.4}

The outer key is the name of an experiment without its system. Numbers come from stored verdicts, written by
`featurelab known --write`; reasons are written by hand. A claim that the file does not name is expected to hold; one
without an entry at paper scale is expected to end there as at laptop scale.
"""

import inspect
import tomllib
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from featurelab.pipelines.engine.errors import RequestError
from featurelab.pipelines.engine.experiment.config import SCALES

FILE = "known.toml"
Status = Literal["holds", "fails", "undecided", "untested"]
State = Literal["broken", "survives", "undecided"]  # what became of a claim under a control
Scalar = bool | int | float | str | None
Value = Scalar | list[Scalar] | dict[str, Scalar | list[Scalar]]


class Finding(BaseModel):
    """What was found of a claim at one scale.

    `reason` says why a claim does not hold. `measured`, `ci`, `worst` and `specific` are as in a `Verdict`, on `seeds`
    seeds; `deciding` are the intervals that decided it, at `level`. `controls` says what became of it under each
    control: a state, or in older entries, and where it could not be measured, the claim's status there. These two stay
    as they were when the claim is judged again without controls, and may rest on fewer seeds than `measured`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    status: Status
    reason: str = ""
    measured: Value = None
    ci: Value = None
    deciding: Value = None
    level: float | None = None
    worst: Value = None
    seeds: int | None = Field(None, ge=1)
    specific: bool | None = None
    controls: dict[str, State | Status] = Field(default_factory=dict)


class Known(BaseModel):
    """What was found of a claim, by scale. `unspecific` says why it may hold under a control too."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    unspecific: str = ""
    laptop: Finding | None = None
    desktop: Finding | None = None
    paper: Finding | None = None

    def at(self, scale: str) -> Finding | None:
        return {"laptop": self.laptop, "desktop": self.desktop, "paper": self.paper}.get(scale)

    def expected_at(self, scale: str) -> Finding | None:
        """What was found at a scale. At paper scale, which few can run, laptop's verdict is expected until one does."""
        if scale != "paper" or self.paper or self.laptop is None or self.laptop.status == "untested":
            return self.at(scale)
        reason = f"at laptop scale: {self.laptop.reason}" if self.laptop.reason else ""
        return Finding(status=self.laptop.status, reason=reason)


def folder_of(function: Callable[..., Any], system: str) -> Path:
    """The folder of the system in which a function was written; outside one, the folder of its file."""
    while isinstance(function, partial):
        function = function.func
    return _above(inspect.getfile(function), system)


@cache
def _above(file: str, system: str) -> Path:
    folders = Path(file).parents
    return next((folder for folder in folders if folder.name == system), folders[0])


@cache
def read(folder: Path) -> Mapping[str, Any]:
    """The tables of a folder's `known.toml`, unchecked; empty without a file. Raises RequestError for no TOML."""
    file = folder / FILE
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RequestError(f"{file} is not TOML: {error}") from None


@cache
def known(folder: Path, experiment: str, claim: str) -> Known:
    """What a folder's `known.toml` says of a claim of the experiment `<system>/<experiment>`; empty without an entry.

    Raises RequestError, which names the file and the key, for an entry of another form.
    """
    name = experiment.partition("/")[2]
    try:
        return Known.model_validate(read(folder).get(name, {}).get(claim, {}))
    except (ValidationError, AttributeError) as error:
        first = error.errors()[0] if isinstance(error, ValidationError) else {"loc": (), "msg": "not a table"}
        key = ".".join(map(str, (name, claim, *first["loc"])))
        raise RequestError(f"{folder / FILE}: {key}: {first['msg']}") from None


def write(folder: Path, findings: Mapping[str, Mapping[str, Known]]) -> Path:
    """Write a folder's `known.toml`: findings by experiment and claim, in this order. Returns the file's path."""
    import tomlkit

    document = tomlkit.document()
    document.add(tomlkit.comment("What was found of each claim, by scale. `featurelab known --write`"))
    document.add(tomlkit.comment("writes the numbers from stored verdicts; the reasons are written by hand."))
    for experiment, claims in findings.items():
        table = tomlkit.table(is_super_table=True)
        for claim, entry in claims.items():
            table.add(claim, _table(entry))
        document.add(experiment, table)
    file = folder / FILE
    file.write_text(tomlkit.dumps(document), encoding="utf-8")
    read.cache_clear()
    known.cache_clear()
    return file


def _table(entry: Known) -> Any:
    import tomlkit

    table = tomlkit.table(is_super_table=not entry.unspecific)
    if entry.unspecific:
        table.add("unspecific", entry.unspecific)
    for scale in SCALES:
        if (finding := entry.at(scale)) is not None:
            values = finding.model_dump(exclude_defaults=True)
            own = tomlkit.table()
            for name, value in values.items():
                own.add(name, _inline(value))
            table.add(scale, own)
    return table


def _inline(value: Any) -> Any:
    """A mapping on one line."""
    import tomlkit

    if not isinstance(value, Mapping):
        return value
    inline = tomlkit.inline_table()
    inline.update(value)
    return inline
