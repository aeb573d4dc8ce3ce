"""What a trial may vary: frozen, validated settings with the field's standard names."""

import hashlib
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from featurelab.pipelines.engine.errors import RequestError, unknown
from featurelab.tracking.lines import quoted

if TYPE_CHECKING:
    import torch

Scale = Literal["laptop", "desktop", "paper"]
SCALES: tuple[Scale, ...] = get_args(Scale)
MOST_BYTES = 100_000  # of a file of settings
LARGEST = 2**63  # beyond it no number fits a tensor or a column of the store
DEEPEST = 8  # lists in lists: more than any setting has, and so few that nothing recurses without end


class Streams(NamedTuple):
    """Seeds of the named random streams of one trial: each in [0, 2^63)."""

    data: int
    init: int
    order: int


def stream_seed(seed: int, name: str) -> int:
    """The seed, in [0, 2^63), of the random stream `name` under `seed`; streams of different names are independent."""
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


class Config(BaseModel):
    """The settings every trial has. An experiment adds its own fields and names the values of its presets."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, validate_default=True)

    seed: int = Field(0, ge=0, lt=2**63, description="root of the random streams data, init and order")
    threads: int = Field(1, ge=1, le=1024, description="CPU threads of one trial; float sums depend on it")
    device: Literal["auto", "cpu", "gpu"] = Field("auto", description="where a trial computes; auto takes a GPU if any")
    precision: Literal["64-true", "32-true", "bf16-mixed"] = Field("32-true", description="Lightning precision")

    @property
    def streams(self) -> Streams:
        return Streams(*(stream_seed(self.seed, name) for name in Streams._fields))

    @property
    def dtype(self) -> "torch.dtype":
        """The floating-point type in which data and weights are kept."""
        import torch  # which the declaration of a figure must not wait for

        return torch.float64 if self.precision == "64-true" else torch.float32

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> Self:
        """The config with these values; raises `RequestError` with one line that names the first bad one."""
        return cls._read(values, cls.model_fields)

    @classmethod
    def _read(cls, values: Mapping[str, Any], new: Iterable[str]) -> Self:
        """Read a config of which all values but those of the fields `new` come from another one."""
        try:
            config = cls.model_validate(dict(values))
        except ValidationError as error:
            raise _explained(error, cls) from None
        for name in new:
            value = getattr(config, name)
            for part in value if isinstance(value, tuple) else (value,):
                if isinstance(part, int) and not -LARGEST < part < LARGEST:
                    raise RequestError(f"{name} = {quoted(part)}: has more than 63 bits")
        return config

    def but(self, **changes: Any) -> Self:
        """This config with some fields changed, validated; raises `RequestError` as `read` does."""
        return self.each([changes])[0]

    def each(self, points: Iterable[Mapping[str, Any]]) -> list[Self]:
        """This config with the fields of each point changed, validated; raises `RequestError` as `read` does."""
        values = self.model_dump()
        return [self._read({**values, **point}, point) for point in points]

    def differences(self, other: "Config") -> dict[str, Any]:
        """The fields whose value here is not the one in `other`."""
        theirs = other.model_dump()
        return {name: value for name, value in self.model_dump().items() if theirs.get(name) != value}

    def label(self, fields: Sequence[str]) -> str:
        """What varies, as `init_scale=0.1 seed=1`: what every legend of the MLflow pages prints."""
        return label(self.model_dump(), fields)


class TrainedConfig(Config):
    """The settings of an experiment that trains on labels: it can be run with what it learns from destroyed.

    Under `permuted_labels` the training labels of every data module are permuted, by a random stream of their own;
    under `untrained` the whole schedule runs with updates withheld. An experiment with a control of its own names it in
    a field `control` that lists these and its own.
    """

    control: Literal["none", "permuted_labels", "untrained"] = Field(
        "none", description="what is destroyed, to see which claims notice"
    )


def controls_of(config: Config) -> tuple[str, ...]:
    """The controls under which an experiment with such settings can be run."""
    field = type(config).model_fields.get("control")
    return tuple(name for name in get_args(field.annotation) if name != "none") if field else ()


C = TypeVar("C", bound=Config)


def seeded_from(first: int, configs: Sequence[C]) -> list[C]:
    """These configs with all seeds moved alike, so that the least one is `first`."""
    least = min((config.seed for config in configs), default=first)
    return [config.but(seed=config.seed - least + first) for config in configs]


def label(values: Mapping[str, Any], fields: Sequence[str]) -> str:
    """`Config.label` of a config's values."""
    ordered = [field for field in fields if field != "seed"] + ["seed"] * ("seed" in fields)
    return " ".join(f"{field}={_short(values.get(field))}" for field in ordered) or "preset"


def tupled(values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as JSON gives them, with lists as the tuples that they were."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}


def parse_overrides(pairs: Iterable[str], model: type[Config]) -> dict[str, Any]:
    """`["lr=0.1", "speeds=[1,2]"]` as `{"lr": "0.1", "speeds": [1, 2]}`; pydantic converts the strings later.

    Raises `RequestError` as `by_setting` does.
    """
    return {name: parse_value(text) for name, text in by_setting(pairs, model).items()}


def by_setting(pairs: Iterable[str], model: type[Config], form: str = "key=value") -> dict[str, str]:
    """What is written after the `=` of each pair, by setting.

    Raises `RequestError` for a pair without `=`, an unknown setting, or one given twice.
    """
    texts: dict[str, str] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise RequestError(f"{quoted(pair)} is not of the form {form}")
        if name not in model.model_fields:
            raise unknown("setting", name, model.model_fields)
        if name in texts:
            raise RequestError(f"{name} is given twice")
        texts[name] = text
    return texts


def read_settings(path: Path | None, model: type[Config]) -> dict[str, Any]:
    """The settings in a YAML or JSON file, none without a file: names and values, which pydantic converts later.

    Raises `RequestError` as `read_mapping` does, and for an unknown setting.
    """
    if path is None:
        return {}
    values = read_mapping(path)
    for name in values:
        if name not in model.model_fields:
            raise unknown("setting", str(name), model.model_fields)
    return values


def read_mapping(path: Path) -> dict[str, Any]:
    """The mapping in a YAML or JSON file.

    Raises `RequestError`, with one line that names the file, where it cannot be read, is not a mapping, has a name
    twice, or uses what a list of settings has no use for: aliases, tags, several documents.
    """
    import yaml

    shown = quoted(str(path))
    try:
        if path.exists() and not path.is_file():  # reading a pipe or a device may never end
            raise RequestError(f"{shown} is {'a directory' if path.is_dir() else 'no plain file'}")
        with open(path, "rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise RequestError(f"{shown} has more than {MOST_BYTES:,} bytes")
        text = content.decode()
        if _depth(text) > DEEPEST:
            raise RequestError(f"{shown} is nested too deep")
        if next((t for t in yaml.scan(text) if isinstance(t, yaml.AliasToken | yaml.TagToken)), None):
            raise RequestError(f"{shown} uses an alias or a tag: write plain values")
        node = yaml.compose(text, yaml.SafeLoader)
        twice = _given_twice(node)
        values = yaml.safe_load(text)
    except (OSError, ValueError) as error:
        raise RequestError(f"{shown} cannot be read: {getattr(error, 'strerror', None) or 'it is no text'}") from None
    except (yaml.YAMLError, RecursionError) as error:
        place = getattr(error, "problem_mark", None)
        raise RequestError(f"{shown} is not YAML" + (f" in line {place.line + 1}" if place else "")) from None
    if not isinstance(values, dict):
        raise RequestError(f"{shown} is not a mapping: write a line like lr: 0.1 for each setting")
    if twice:
        raise RequestError(f"{twice} is given twice in {shown}")
    for name in values:
        if _levels(values[name]) > DEEPEST:
            raise RequestError(f"{name} in {shown} is nested too deep")
    return values


def _given_twice(node: Any) -> str:
    """A name that a mapping of a YAML document has twice, or an empty text."""
    import yaml

    if isinstance(node, yaml.SequenceNode):
        return next(filter(None, map(_given_twice, node.value)), "")
    if not isinstance(node, yaml.MappingNode):
        return ""
    names = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
    twice = next((name for name in names if names.count(name) > 1), "")
    return twice or next(filter(None, (_given_twice(value) for _, value in node.value)), "")


def _levels(value: Any) -> int:
    """How deep a value of lists and mappings is nested."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(_levels, parts), default=0)


def parse_value(text: str) -> Any:
    """A value as written on a command line: none, a JSON list, or text that pydantic converts to the field's type."""
    if text.lower() in ("none", "null"):
        return None
    if text.startswith("["):
        if _depth(text) > DEEPEST:
            raise RequestError(f"{quoted(text)} is nested too deep")
        try:
            return json.loads(text)
        except (ValueError, RecursionError):  # ValueError: also a number of thousands of digits
            raise RequestError(f"{quoted(text)} is not a list: write it as [1, 2, 3]") from None
    return text


def _depth(text: str) -> int:
    """How deep brackets are nested."""
    return max(itertools.accumulate((c in "[{") - (c in "]}") for c in text), default=0)


def _explained(error: ValidationError, model: type[Config]) -> RequestError:
    first = error.errors()[0]
    name = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return unknown("setting", name, model.model_fields)
    message = first["msg"].removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    if not first["loc"]:  # of several settings together
        return RequestError(message)
    return RequestError(f"{name} = {quoted(first['input'])}: {message}")


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
