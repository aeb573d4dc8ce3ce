"""Settings: named streams, validation in one line, and what is read from a command line."""

import itertools
import math
import os
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from featurelab.pipelines.engine.errors import RequestError
from featurelab.pipelines.engine.experiment.config import (
    Config,
    Streams,
    parse_overrides,
    parse_value,
    read_settings,
    stream_seed,
)


class Fit(Config):
    lr: float = Field(0.1, gt=0)
    width: int = Field(64, ge=1)
    decay: float | None = Field(None, ge=0)
    optimizer: Literal["gd", "adam"] = "gd"
    speeds: tuple[float, ...] = (1.0, 2.0)


def one_line(error):
    said = str(error.value)
    assert said
    assert "\n" not in said
    return said


def test_the_seeds_of_streams_are_those_of_earlier_versions():
    """Changing them changes every result ever recorded: only on purpose."""
    assert stream_seed(0, "data") == 736872305540241488
    assert stream_seed(1, "init") == 5267816590608909949


def test_streams_of_different_names_or_seeds_differ():
    seeds = [s for seed in range(200) for s in Fit(seed=seed).streams]
    assert len(set(seeds)) == 200 * len(Streams._fields)
    assert all(0 <= s < 2**63 for s in seeds)


def test_streams_of_one_seed_are_uncorrelated():
    columns = [[stream_seed(seed, name) / 2**63 for seed in range(2000)] for name in Streams._fields]
    for a, b in itertools.combinations(columns, 2):
        correlation = sum((x - 0.5) * (y - 0.5) for x, y in zip(a, b, strict=True)) / 2000 * 12
        assert abs(correlation) < 0.1  # 4.5 standard deviations
    assert all(abs(sum(c) / 2000 - 0.5) < 0.03 for c in columns)


def test_streams_depend_on_the_seed_alone():
    assert Fit(width=1, lr=3.0, threads=4).streams == Fit().streams


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"seed": -1}, ["seed = -1", "greater than or equal to 0"]),
        ({"seed": 2**63}, ["seed", "less than"]),
        ({"seed": "1e400"}, ["seed", "integer"]),
        ({"seed": 1.5}, ["seed = 1.5", "integer"]),
        ({"lr": "nan"}, ["lr = 'nan'", "finite"]),
        ({"lr": math.inf}, ["lr = inf", "finite"]),
        ({"lr": "-inf"}, ["lr", "finite"]),
        ({"lr": 0}, ["lr = 0", "greater than 0"]),
        ({"lr": None}, ["lr = None", "number"]),
        ({"lr": "fast"}, ["lr = 'fast'", "number"]),
        ({"lr": [0.1]}, ["lr", "number"]),
        ({"width": "2.5"}, ["width = '2.5'", "integer"]),
        ({"width": -3}, ["width = -3"]),
        ({"threads": 0}, ["threads = 0"]),
        ({"optimizer": "adm"}, ["optimizer = 'adm'", "'gd' or 'adam'"]),
        ({"precision": "16"}, ["precision", "'32-true'"]),
        ({"speeds": [1.0, math.nan]}, ["speeds.1 = nan", "finite"]),
        ({"speeds": 3}, ["speeds = 3", "tuple"]),
        ({"widht": 3}, ["unknown setting 'widht'", "did you mean width?"]),
        ({"xyzzy": 3}, ["unknown setting 'xyzzy'", "there is"]),
        ({"width": "9" * 5000}, ["width"]),
        ({"lr": "x" * 10_000}, ["lr"]),
        ({"lr": "a\nb"}, ["lr = 'a\\nb'"]),
    ],
)
def test_a_bad_value_is_refused_in_one_line_that_names_it(changes, names):
    with pytest.raises(RequestError) as error:
        Fit().but(**changes)
    said = one_line(error)
    assert all(name in said for name in names), said
    assert len(said) < 250


def test_a_config_cannot_be_changed_in_place():
    with pytest.raises(ValueError, match="frozen"):
        Fit().lr = 1.0


configs = st.builds(
    Fit,
    seed=st.integers(0, 2**63 - 1),
    lr=st.floats(0, exclude_min=True, allow_infinity=False),
    width=st.integers(1, 10**12),
    decay=st.none() | st.floats(0, allow_infinity=False),
    optimizer=st.sampled_from(["gd", "adam"]),
    speeds=st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=4).map(tuple),
)


@given(configs)
def test_a_config_is_read_back_from_what_it_writes(config):
    assert Fit.read(config.model_dump()) == config
    assert Fit.read(config.model_dump(mode="json")) == config
    assert Fit.model_validate_json(config.model_dump_json()) == config
    assert hash(Fit.read(config.model_dump())) == hash(config)


@given(configs, configs)
def test_differences_are_what_turns_one_config_into_the_other(one, other):
    assert other.but(**one.differences(other)) == one
    assert one.differences(one) == {}


anything = st.text(st.characters(), max_size=40)  # lone surrogates too: a command line can hold them
values = st.one_of(
    anything,
    st.floats().map(str),
    st.integers().map(str),
    st.sampled_from(["", "[", "[]", "[1,2]", "[NaN]", "[1e999]", "none", "gd", "[" * 3000, "[" + "9" * 5000 + "]"]),
    anything.map(lambda text: f"[{text}]"),
    st.lists(st.one_of(st.none(), st.floats(), st.text(max_size=5), st.booleans()), max_size=4).map(str),
)


@given(st.lists(st.tuples(st.sampled_from([*Fit.model_fields, "lr ", "Lr"]) | anything, values), max_size=3))
def test_any_override_gives_a_valid_config_or_one_line(pairs):
    refusal = None
    try:
        config = Fit().but(**parse_overrides([f"{name}={value}" for name, value in pairs], Fit))
    except RequestError as error:
        refusal = str(error)
    if refusal is not None:
        assert len(refusal.splitlines()) == 1
        return
    assert math.isfinite(config.lr)
    assert config.lr > 0
    assert config.width >= 1
    assert all(map(math.isfinite, config.speeds))
    assert Fit.read(config.model_dump()) == config


def test_overrides_are_split_at_the_first_equals_sign():
    assert parse_overrides(["lr=0.1", "speeds=[1, 2]", "decay=none"], Fit) == {
        "lr": "0.1",
        "speeds": [1, 2],
        "decay": None,
    }
    with pytest.raises(RequestError) as error:
        Fit().but(**parse_overrides(["lr=1=2"], Fit))
    assert "lr = '1=2'" in one_line(error)


@pytest.mark.parametrize(
    ("pairs", "says"),
    [
        (["lr"], "'lr' is not of the form key=value"),
        ([""], "'' is not of the form key=value"),
        (["lr=1", "lr=1"], "lr is given twice"),
        (["widht=3"], "unknown setting 'widht': did you mean width?"),
        (["speeds=[1,"], "is not a list"),
    ],
)
def test_malformed_overrides_are_refused(pairs, says):
    with pytest.raises(RequestError) as error:
        parse_overrides(pairs, Fit)
    assert says in one_line(error)


def test_a_file_of_settings_means_what_the_same_settings_mean_when_typed(tmp_path):
    path = tmp_path / "settings.yaml"
    path.write_text("lr: 1e-3  # typed as people type it\nwidth: 128\nspeeds: [1, 2.5]\n")
    found = Fit().but(**read_settings(path, Fit))
    assert found == Fit().but(**parse_overrides(["lr=1e-3", "width=128", "speeds=[1, 2.5]"], Fit))
    path.write_text('{"lr": 0.001, "width": 128, "speeds": [1, 2.5]}')
    assert Fit().but(**read_settings(path, Fit)) == found


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "is not a mapping"),
        ("- lr", "is not a mapping"),
        ("lr: 1\n---\nlr: 2", "is not YAML in line 2"),
        ("lr: 1\nwidth: [1", "is not YAML in line"),
        ("widht: 3", "unknown setting 'widht': did you mean width?"),
        ("1: 3", "unknown setting '1'"),
        ("lr: 1\nlr: 2", "lr is given twice in"),
        ("lr: &a 1\nwidth: *a", "uses an alias or a tag"),
        ("lr: !!float 1", "uses an alias or a tag"),
        ("speeds: [[[[[[[[[1]]]]]]]]]", "is nested too deep"),
        ("speeds:\n  " + "- " * 9 + "1", "is nested too deep"),
        ("\0", "is not YAML"),
        ("lr: \ud800", "it is no text"),
    ],
)
def test_files_that_are_no_settings_are_refused(tmp_path, content, says):
    path = tmp_path / "settings.yaml"
    path.write_bytes(content.encode("utf-8", "surrogatepass"))
    with pytest.raises(RequestError) as error:
        read_settings(path, Fit)
    assert says in one_line(error)


def test_a_written_value_is_none_a_list_or_text():
    assert parse_value("None") is None
    assert parse_value("NULL") is None
    assert parse_value("[1, 2.5]") == [1, 2.5]
    assert parse_value("1e-3") == "1e-3"


def test_labels_say_what_varies_the_seed_last():
    assert Fit(lr=0.25, seed=3).label(["seed", "lr", "width"]) == "lr=0.25 width=64 seed=3"
    assert Fit(lr=1 / 3).label(["lr"]) == "lr=0.3333"
    assert Fit().label([]) == "preset"


@pytest.mark.parametrize(
    ("kind", "says"), [("pipe", "is no plain file"), ("device", "is no plain file"), ("folder", "is a directory")]
)
def test_settings_are_read_from_plain_files_alone(kind, says, tmp_path):
    path = {"pipe": tmp_path / "pipe", "device": Path("/dev/zero"), "folder": tmp_path}[kind]
    if kind == "pipe":
        os.mkfifo(path)
    with pytest.raises(RequestError, match=says):
        read_settings(path, Config)


def test_settings_may_be_reached_through_a_link(tmp_path):
    (tmp_path / "settings.yaml").write_text("seed: 3\n")
    (tmp_path / "link.yaml").symlink_to(tmp_path / "settings.yaml")
    assert read_settings(tmp_path / "link.yaml", Config) == {"seed": 3}
