"""Ray's sessions lie in a folder that only this user can enter, at a path that its sockets can have."""

import os
import stat
import tempfile
import time
from pathlib import Path

import pytest

from featurelab.pipelines.engine.errors import RequestError
from featurelab.pipelines.engine.sweep.ray import session
from featurelab.pipelines.engine.sweep.ray.session import session_folder


@pytest.fixture
def temporary(tmp_path, monkeypatch):  # pytest's own folder is made first
    """A short folder for temporary files, as /tmp is: everybody may write to it."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chmod(folder, 0o1777)
        monkeypatch.delenv("RAY_TMPDIR", raising=False)
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)


@pytest.fixture
def ours(temporary):
    return temporary / f"featurelab-{os.geteuid()}"


def test_the_folder_above_the_sessions_is_made_for_this_user_alone(ours, monkeypatch):
    before = os.umask(0)
    try:
        assert session_folder() == str(ours / "ray")
    finally:
        os.umask(before)
    assert stat.S_IMODE(ours.stat().st_mode) == 0o700
    ours.chmod(0o777)
    assert session_folder() == str(ours / "ray")
    assert stat.S_IMODE(ours.stat().st_mode) == 0o700


def test_a_link_or_a_file_in_its_place_is_refused_and_left_as_it_is(ours, tmp_path):
    target = tmp_path / "target"
    target.mkdir(mode=0o755)
    ours.symlink_to(target)
    with pytest.raises(RequestError, match="is not a folder: set RAY_TMPDIR to a folder of your own"):
        session_folder()
    assert stat.S_IMODE(target.stat().st_mode) == 0o755
    ours.unlink()
    ours.write_text("mine")
    with pytest.raises(RequestError, match="is not a folder"):
        session_folder()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_in_its_place_is_refused(ours):
    ours.mkdir(mode=0o700)
    os.chown(ours, 65534, 65534)
    with pytest.raises(RequestError, match="belongs to another user: set RAY_TMPDIR"):
        session_folder()


def test_a_folder_whose_path_is_too_long_for_sockets_is_passed_over_or_where_it_was_asked_for_refused(
    temporary, tmp_path, monkeypatch
):
    deep = tmp_path / ("d" * 60)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    assert session_folder() == f"/tmp/featurelab-{os.geteuid()}/ray"
    monkeypatch.setenv("RAY_TMPDIR", str(deep))
    with pytest.raises(RequestError, match=r"^RAY_TMPDIR '.*' is too long for Ray's sockets: at most \d\d characters$"):
        session_folder()
    monkeypatch.setenv("RAY_TMPDIR", str(temporary))
    found = f"{session_folder()}/session_2026-11-23_13-37-00_123456_4194304/sockets/plasma_store"
    assert len(found) <= 107


def test_of_older_sessions_the_last_few_stay_and_those_that_still_write(ours, monkeypatch):
    sessions = Path(session_folder())
    old = time.time() - 2 * session.QUIET
    for day in range(10, 19):
        logs = sessions / f"session_2026-11-{day}_10-00-00_000000_{day}" / "logs"
        logs.mkdir(parents=True)
        (logs / "raylet.out").write_text("words")
        for path in (logs / "raylet.out", logs, logs.parent):
            os.utime(path, (old, old))
    living = sessions / "session_2026-11-11_10-00-00_000000_11" / "logs" / "raylet.out"
    living.write_text("it writes")
    session_folder()
    days = sorted(int(path.name.rpartition("_")[2]) for path in sessions.iterdir())
    assert days == [11, 14, 15, 16, 17, 18]
