from __future__ import annotations

import importlib.metadata
import json
import math
import platform
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from featurelab.tracking import provenance
from featurelab.tracking.provenance import changes, config_hash, environment, source

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
CONFIGS = st.dictionaries(st.text(), JSON, max_size=5)


def test_the_environment_names_software_and_hardware_and_survives_json():
    recorded = environment(threads=2)
    assert recorded["threads"] == 2
    assert recorded["python"] == platform.python_version()
    assert f"mlflow=={importlib.metadata.version('mlflow')}" in recorded["packages"]
    assert recorded["packages"] == sorted(recorded["packages"])
    assert " x " in recorded["cpu"]
    assert json.loads(json.dumps(recorded)) == recorded
    assert changes(recorded, json.loads(json.dumps(environment(threads=2)))) == []


def test_environment_variables_and_the_host_name_are_not_recorded(monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "hunter2-hunter2")
    provenance._machine.cache_clear()
    text = json.dumps({**environment(), "git": None})
    assert "hunter2" not in text
    assert f'"{platform.node()}"' not in text


def test_each_difference_is_one_readable_line():
    old = {"python": "3.11.1", "threads": 1, "gpus": [], "packages": ["a==1", "b==2", "c==3"], "git": None}
    new = {"python": "3.12.0", "threads": 1, "gpus": ["H200 driver 1"], "packages": ["a==1", "b==5", "d==4"]}
    new["git"] = {"commit": "0123456789abcdef", "diff_sha256": "ffff", "untracked": ["new.py"]}
    assert changes(old, new) == [
        "source: none -> 0123456789ab",
        "uncommitted changes: none -> ffff",
        "the untracked files differ",
        "gpus: none -> H200 driver 1",
        "b: 2 -> 5",
        "c: 3 -> absent",
        "d: absent -> 4",
        "python: 3.11.1 -> 3.12.0",
    ]
    assert changes(old, old) == []


def _git(directory: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    command = ["git", "-C", str(directory), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_source_is_described_by_commit_and_uncommitted_changes(tmp_path, monkeypatch):
    assert source(tmp_path) is None
    _git(tmp_path, "init", "-q")
    (tmp_path / "code.py").write_text("a = 1\n")
    _git(tmp_path, "add", ".")
    _git(tmp_path, "commit", "-qm", "first")
    clean = source(tmp_path)
    expected = {"commit": _git(tmp_path, "rev-parse", "HEAD"), "dirty": False, "diff": "", "diff_sha256": ""}
    assert clean == {**expected, "untracked": []}

    (tmp_path / "code.py").write_text("a = 2\n")
    (tmp_path / "new.py").write_text("b = 1\n")
    dirty = source(tmp_path)
    assert dirty["dirty"]
    assert "+a = 2" in dirty["diff"]
    assert dirty["untracked"] == ["new.py"]
    monkeypatch.setattr(provenance, "LONGEST_DIFF", 10)
    cut = source(tmp_path)
    assert len(cut["diff"]) == 10
    assert cut["diff_sha256"] == dirty["diff_sha256"]


@given(CONFIGS)
def test_a_configuration_has_one_hash_whatever_its_order(config):
    backwards = dict(reversed(config.items()))
    assert config_hash(config) == config_hash(backwards) == config_hash(json.loads(json.dumps(config)))
    assert len(config_hash(config)) == 16


@given(CONFIGS, CONFIGS)
def test_different_configurations_have_different_hashes(one, other):
    def canonical(config):
        return json.dumps(config, sort_keys=True)

    assert (config_hash(one) == config_hash(other)) == (canonical(one) == canonical(other))


def test_values_that_json_cannot_hold_have_no_hash():
    assert config_hash({"lr": np.float64(0.1), "path": Path("/a")}) == config_hash({"lr": 0.1, "path": "/a"})
    for value, error in ((math.nan, ValueError), (math.inf, ValueError), (object(), TypeError)):
        with pytest.raises(error):
            config_hash({"lr": value})


def test_copies_inside_another_package_are_not_listed_as_installed(monkeypatch, tmp_path):
    site = tmp_path / "site-packages"
    for folder, name in ((site, "real"), (site / "carrier" / "thirdparty", "carried"), (tmp_path / "own", "mine")):
        info = folder / f"{name}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    monkeypatch.setattr("sys.path", [str(site), str(site / "carrier" / "thirdparty"), str(tmp_path / "own")])
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(site))
    assert provenance.packages() == ["mine==1.0", "real==1.0"]


def test_packages_are_named_as_their_metadata_names_them(monkeypatch, tmp_path):
    written = {
        "a-1.dist-info/METADATA": "Metadata-Version: 2.1\nName: A_b\nVersion: 1\nSummary: Name: c\n\nVersion: 7\n",
        "old-2.egg-info/PKG-INFO": "Metadata-Version: 1.0\nName: old\nVersion: 2\n",
        "broken-3.dist-info/METADATA": "",
    }
    for path, text in written.items():
        (tmp_path / path).parent.mkdir()
        (tmp_path / path).write_text(text)
    found = [importlib.metadata.PathDistribution((tmp_path / path).parent) for path in written]
    monkeypatch.setattr(importlib.metadata, "distributions", lambda: found)
    assert provenance.packages() == ["a-b==1", "old==2"]
