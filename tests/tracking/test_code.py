"""Each package whose code made a result is identified by a digest of its files."""

import subprocess
import sys

import pytest

from featurelab.tracking import code
from featurelab.tracking.provenance import changes


@pytest.fixture
def load(tmp_path, monkeypatch):
    """Return a function that writes files to a folder on the path, imports them and returns what is recorded."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def written(name, files):
        for file, text in files.items():
            (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / file).write_text(text)
        for module in [module for module in sys.modules if module.partition(".")[0] == name]:
            del sys.modules[module]
        __import__(name)
        code.package.cache_clear()
        return code.package(name)

    yield written
    code.package.cache_clear()
    for name in [module for module in sys.modules if module.startswith("lab_")]:
        del sys.modules[name]


def test_a_single_file_module_lists_its_file(load):
    recorded = load("lab_single", {"lab_single.py": "a = 1\n", "other.py": ""})
    assert list(recorded["files"]) == ["lab_single.py"]
    assert changes({"code": {"lab_single": recorded}}, {"code": {"lab_single": recorded}}) == []


def test_a_changed_package_gives_one_line_with_digests_and_files(load):
    files = {"lab_pack/__init__.py": "", "lab_pack/nets/mlp.py": "b = 1\n", "lab_pack/data.csv": "1"}
    before = load("lab_pack", files)
    assert sorted(before["files"]) == ["lab_pack/__init__.py", "lab_pack/nets/mlp.py"]
    assert load("lab_pack", {"lab_pack/data.csv": "2"}) == before
    after = load("lab_pack", {"lab_pack/nets/mlp.py": "b = 2\n"})
    (change,) = changes({"code": {"lab_pack": before}}, {"code": {"lab_pack": after}})
    assert change == f"source of lab_pack: {before['digest']} -> {after['digest']} (lab_pack/nets/mlp.py)"


def test_a_package_with_a_link_to_itself_is_read_once(load, tmp_path):
    (tmp_path / "lab_loop").mkdir()
    (tmp_path / "lab_loop" / "again").symlink_to(tmp_path / "lab_loop")
    assert list(load("lab_loop", {"lab_loop/__init__.py": ""})["files"]) == ["lab_loop/__init__.py"]


def test_a_large_package_is_listed_by_folder_and_a_huge_one_is_cut(load, monkeypatch):
    files = {"lab_large/__init__.py": ""} | {f"lab_large/part{n % 3}/m{n}.py": "" for n in range(12)}
    monkeypatch.setattr(code, "MOST_NAMED", 10)
    recorded = load("lab_large", files)
    assert sorted(recorded["files"]) == ["lab_large/", "lab_large/part0/", "lab_large/part1/", "lab_large/part2/"]
    assert "cut" not in recorded
    monkeypatch.setattr(code, "MOST_FILES", 5)
    assert load("lab_large", {})["cut"]


def test_the_commit_of_a_package_is_that_of_the_repository_that_tracks_it(load, tmp_path):
    def git(*arguments):
        command = ["git", "-C", tmp_path, "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "-q")
    files = {"lab_git/__init__.py": "", "lab_loose.py": ""}
    assert "commit" not in load("lab_git", files)
    git("add", "lab_git/__init__.py")
    git("commit", "-qm", "first")
    (tmp_path / "lab_git" / "__pycache__").mkdir(exist_ok=True)
    (tmp_path / "lab_git" / "__pycache__" / "left.pyc").touch()
    recorded = load("lab_git", files)
    assert (recorded["commit"], recorded["dirty"]) == (git("rev-parse", "HEAD"), False)
    assert load("lab_git", {"lab_git/__init__.py": "c = 1\n"})["dirty"]
    assert "commit" not in load("lab_loose", {})


def test_our_own_source_is_recorded_too():
    recorded = code.package("featurelab")
    assert {"featurelab/modules/", "featurelab/pipelines/engine/trial/", "featurelab/tracking/"} <= recorded[
        "files"
    ].keys()


def test_a_run_recorded_without_packages_says_so_and_shows_no_change():
    new = {"code": {"featurelab": {"digest": "a"}, "lab": {"digest": "b"}}, "git": None}
    assert changes({"git": None}, new) == [
        "source of featurelab: not recorded for the earlier run",
        "source of lab: not recorded for the earlier run",
    ]
    of_git = {"git": {"commit": "abc"}}
    assert changes(of_git, new | of_git) == ["source of lab: not recorded for the earlier run"]
