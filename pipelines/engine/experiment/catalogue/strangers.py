"""Other people's experiments, through the entry points of their packages; a package that does not load is left out."""

import os
import re
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from types import FrameType, ModuleType
from typing import Any, NoReturn
from weakref import WeakKeyDictionary

from featurelab.pipelines.engine.errors import RequestError
from featurelab.pipelines.engine.experiment.catalogue.installing import GROUP
from featurelab.pipelines.engine.experiment.experiment import Experiment

LIMIT = "FEATURELAB_IMPORT_SECONDS"

_entries: WeakKeyDictionary[Experiment, EntryPoint] = WeakKeyDictionary()
_broken: dict[tuple[str, str, str], str] = {}  # why what did not load does not: it is not tried twice


class LeftOut(Exception):
    """A package's experiments cannot be used; the message names the package and says why, in one line."""


class _TooSlow(BaseException):
    """An import took too long; not an `Exception`, so that no `except` of the package stops it."""


def entries() -> list[EntryPoint]:
    """The entry points of all installed packages that name experiments, read again where a folder has changed."""
    return list(_entries_in(tuple((folder, _changed(folder)) for folder in sys.path)))


@lru_cache(1)
def _entries_in(folders: tuple[tuple[str, int], ...]) -> list[EntryPoint]:
    return list(entry_points(group=GROUP))


def _changed(folder: str) -> int:
    """When something was last added to a folder or removed from it; 0 if there is no such folder."""
    try:
        return os.stat(folder or ".").st_mtime_ns
    except OSError:
        return 0


def load(entry: EntryPoint, system: str) -> list[Experiment]:
    """The experiments of `system` that an entry point names. Raises LeftOut where there are none."""
    place = str(entry.dist.locate_file("")) if entry.dist else ""
    key = (entry.name, entry.value, place)
    if key not in _broken:
        try:
            declared = [experiment for experiment in _declared(_imported(entry)) if experiment.system == system]
        except LeftOut as error:
            _broken[key] = str(error)
        else:
            for experiment in declared:
                _entries.setdefault(experiment, entry)
            if declared:
                return declared
            _broken[key] = f"{entry.value} declares no experiment of {system}, which its entry point names"
    raise LeftOut(f"the package {package_of(entry)} is left out: {_broken[key]}")


def system_of(entry: EntryPoint) -> str:
    """The system that an entry point names as `system`, `system.experiment` or `system/experiment`."""
    return re.split(r"[./]", entry.name, maxsplit=1)[0]


def package_of(entry: EntryPoint) -> str:
    """The name under which the package of an entry point is installed."""
    return str(entry.dist.name if entry.dist and entry.dist.name else entry.value)


def entry_of(experiment: Experiment) -> EntryPoint | None:
    """The entry point through which an experiment was found; None for ours."""
    return _entries.get(experiment)


def declared_in(module: ModuleType) -> Iterator[Experiment]:
    """The experiments that a module holds."""
    for value in vars(module).values():
        # not isinstance: it would look at the value's __class__, which makes a lazily loaded module load
        if issubclass(type(value), Experiment):
            yield value


def _declared(target: Any) -> list[Experiment]:
    if isinstance(target, Experiment):
        return [target]
    if isinstance(target, ModuleType):
        return list(declared_in(target))
    raise LeftOut("its entry point names neither an Experiment nor a module that declares some")


def _imported(entry: EntryPoint) -> Any:
    """What an entry point names. What the package prints on the way goes to stderr: stdout may be a document."""
    limit = _limit()
    interrupts: list[int] = []
    try:
        with redirect_stdout(sys.stderr), _staying(), _limited(limit, interrupts):
            return entry.load()
    except SystemExit as end:
        why = f"exits at import (status {end.code or 0})"
    except _TooSlow:
        why = f"took longer than {limit:g} s to import; {LIMIT} allows more"
    except Exception as error:
        why = f"does not load: {_first_line(error)}"
    except BaseException as error:
        ours = type(error).__module__.startswith("featurelab.")  # a signal's
        if ours or isinstance(error, GeneratorExit) or (isinstance(error, KeyboardInterrupt) and interrupts):
            raise
        why = f"does not load: {_first_line(error)}"
    raise LeftOut(f"{entry.value} {why}")


def _limit() -> float:
    text = os.environ.get(LIMIT, "20")
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 1e6:
        raise RequestError(f"{LIMIT} is a number of seconds above 0, not {text!r}")
    return seconds


@contextmanager
def _staying() -> Iterator[None]:
    """Inside, `os._exit` raises SystemExit: the process would end without a word. Forked children still end."""
    process, thread, leave = os.getpid(), threading.get_ident(), os._exit

    def stay(status: int) -> NoReturn:
        if (os.getpid(), threading.get_ident()) != (process, thread):
            leave(status)
        raise SystemExit(status)

    os._exit = stay
    try:
        yield
    finally:
        os._exit = leave


@contextmanager
def _limited(seconds: float, interrupts: list[int]) -> Iterator[None]:
    """Inside, `_TooSlow` is raised after so many seconds; `interrupts` gets each Ctrl-C that comes.

    Signals reach the main thread only: in any other, nothing is limited.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "SIGALRM"):
        interrupts.append(0)  # whether it was one is not known: let it through
        yield
        return
    over = False

    def late(number: int, frame: FrameType | None) -> None:
        if not over:
            raise _TooSlow

    def noted(number: int, frame: FrameType | None) -> None:
        interrupts.append(number)
        if callable(before):
            before(number, frame)

    before = signal.getsignal(signal.SIGINT)
    if callable(before):
        signal.signal(signal.SIGINT, noted)
    alarm = signal.signal(signal.SIGALRM, late)
    timer = signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)  # and again, where a destructor swallows the first
    try:
        yield
    finally:
        over = True
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, alarm)
        if signal.getsignal(signal.SIGINT) is noted:
            signal.signal(signal.SIGINT, before)


def _first_line(error: BaseException) -> str:
    try:
        said = str(error).strip()
    except Exception:
        said = ""
    return f"{type(error).__name__}: {said.splitlines()[0]}" if said else type(error).__name__
