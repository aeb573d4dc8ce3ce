"""The folder in which a Ray of our own keeps its sockets and logs: of this user alone."""

import os
import shutil
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from featurelab.pipelines.engine.errors import RequestError
from featurelab.tracking.lines import quoted

LONGEST_SOCKET = 107 if os.uname().sysname == "Linux" else 103  # characters of the path of a Unix socket
SOCKET = len("/session_2026-11-23_13-37-00_123456_4194304/sockets/plasma_store")
KEPT = 5  # sessions whose logs stay
QUIET = 3600.0  # seconds without a new word in its logs after which a session is over: while it lives it writes often


def session_folder() -> str:
    """The folder for Ray's sessions, made if need be: `featurelab-UID/ray` where temporary files go.

    Ray lets every user write to the folders that it makes, so they lie in one that only this user can enter.
    Raises `RequestError` where there can be none: the folder belongs to somebody else, or its path is too long.
    """
    chosen = os.environ.get("RAY_TMPDIR")
    name = f"featurelab-{os.geteuid()}"
    home = next((place for place in (chosen or tempfile.gettempdir(), "/tmp") if chosen or _short(place, name)), "/tmp")
    if not _short(home, name):
        most = LONGEST_SOCKET - SOCKET - len(f"/{name}/ray")
        raise RequestError(f"RAY_TMPDIR {quoted(home)} is too long for Ray's sockets: at most {most} characters")
    folder = Path(home).absolute() / name
    try:
        _keep_to_ourselves(folder)
    except OSError as error:
        raise RequestError(f"Ray's folder {folder} cannot be made: {error.strerror}; set RAY_TMPDIR") from None
    sessions = folder / "ray"
    _prune(sessions)
    return str(sessions)


def _short(home: str, name: str) -> bool:
    return len(os.fsencode(f"{Path(home).absolute()}/{name}/ray")) + SOCKET <= LONGEST_SOCKET


def _keep_to_ourselves(folder: Path) -> None:
    """Make the folder with mode 0700, or give it that mode; raises `RequestError` where it is not this user's."""
    with suppress(FileExistsError):
        os.mkdir(folder, 0o700)
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        what = "belongs to another user" if stat.S_ISDIR(found.st_mode) else "is no folder"
        raise RequestError(f"{folder}, where Ray's sockets would lie, {what}: set RAY_TMPDIR to a folder of your own")
    if found.st_mode & 0o077:
        os.chmod(folder, 0o700)


def _prune(sessions: Path) -> None:
    """Delete what older sessions have left, but for the logs of the last few; Ray itself deletes none."""
    with suppress(OSError):
        found = sorted(sessions.glob("session_2*"), reverse=True)
        for session in found[KEPT:]:
            if time.time() - _last_word(session) > QUIET:
                shutil.rmtree(session, ignore_errors=True)


def _last_word(session: Path) -> float:
    times = [session.lstat().st_mtime]
    for path in (session / "logs").glob("*"):
        with suppress(OSError):
            times.append(path.lstat().st_mtime)
    return max(times)
