"""Signals that end a process: as exceptions where something has to be closed first, and else at once."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SAME = 1.0  # seconds within which a second signal is the first again: a closed terminal sends SIGHUP more than once

Handler = Callable[[int, FrameType | None], Any]


class Terminated(BaseException):
    """A signal told this process to end; not an `Exception`, so that nothing on the way takes it for a failure."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number
        self.status = 128 + number  # the exit status that shells give a process which the signal ended


class Enough(Exception):
    """What runs shall be ended, for this reason; `advice` says what to do about it."""

    def __init__(self, reason: str, advice: str) -> None:
        super().__init__(reason)
        self.advice = advice


class LastLine:
    """The last line that a command prints when a signal ends it; the command fills in the facts as it goes."""

    recorded: bool | None = None  # whether anything was recorded; None for a command that records nothing
    run_id = ""  # of a command that runs a single trial
    resume_command = ""  # what to type to continue
    printed = False

    def text(self, number: int) -> str:
        """Return the line, without its end, for the signal `number`."""
        end = "interrupted" if number == signal.SIGINT else "terminated"
        if self.recorded is None:
            return end
        if not self.recorded:
            return f"{end} before anything was recorded"
        end += "; what was recorded is kept"
        if self.resume_command:
            return f"{end}. Continue with: {self.resume_command}"
        return f"{end} in run {self.run_id}, which featurelab rerun {self.run_id} repeats" if self.run_id else end


last_line = LastLine()  # of this process
_leave: Callable[[int], Any] | None = None


def as_exception(number: int) -> BaseException:
    return KeyboardInterrupt() if number == signal.SIGINT else Terminated(number)


@contextmanager
def at_once(leave: Callable[[int], NoReturn]) -> Iterator[None]:
    """Inside, signals to end call `leave(number)`, which ends this process.

    An exception would not do: raised in a callback of a weak reference, as imports and Ray have them, it is ignored.
    What was started to ignore a signal (nohup) still ignores it. Like `raised` and `held_back`, this changes nothing
    outside the main thread.
    """
    global _leave
    _leave = leave
    try:
        with _handled(ENDING, lambda number, before: lambda number, frame: leave(number)):
            yield
    finally:
        _leave = None


@contextmanager
def raised(error: Callable[[int], BaseException] = as_exception) -> Iterator[list[int]]:
    """Inside, signals to end raise `error` of their number. Gives the list of those that came.

    A second signal ends the process at once: whoever sends it does not want to wait.
    """
    came: list[int] = []
    since = 0.0

    def handler(number: signal.Signals, before: Any) -> Handler:
        def end(_: int, frame: FrameType | None) -> None:
            nonlocal since
            if came:
                if time.monotonic() - since > SAME:
                    _leave(number) if _leave else _as_before(number, before)
                return
            since = time.monotonic()
            came.append(number)
            raise error(number)

        return end

    def unheard(ignored: Any) -> None:
        """Python has ignored our exception, raised where none can be: send the signal again."""
        if came and isinstance(ignored.exc_value, (KeyboardInterrupt, Terminated)):
            number = came.pop()
            threading.Timer(0.05, os.kill, (os.getpid(), number)).start()
        else:
            known(ignored)

    known = sys.unraisablehook
    sys.unraisablehook = unheard
    try:
        with _handled(ENDING, handler):
            yield came
    finally:
        sys.unraisablehook = known


class Held:
    """Signals that wait, except while they are let through."""

    def __init__(self) -> None:
        self._waiting: list[Callable[[], Any]] = []
        self._through = False
        self.passed = False  # whether one has got through

    @contextmanager
    def let_through(self) -> Iterator[None]:
        self._through = True
        try:
            self.pass_on()
            yield
        finally:
            self._through = False

    def pass_on(self) -> None:
        while self._waiting:
            self.passed = True
            self._waiting.pop()()

    def handler(self, number: signal.Signals, before: Any) -> Handler:
        def handle(_: int, frame: FrameType | None) -> None:
            if self._through or self._waiting or self.passed:
                self.passed = True
                _as_before(number, before)
            else:
                self._waiting.append(lambda: _as_before(number, before))

        return handle


@contextmanager
def held_back() -> Iterator[Held]:
    """Inside, the first signal to end waits until what must not be cut in two is done; a second one does not."""
    held = Held()
    with _handled(ENDING, held.handler):
        yield held
    held.pass_on()


def kill_descendants() -> None:
    """Kill all processes that this one has started, and those that they have."""
    found: set[int] = set()
    while fresh := _descendants() - found:
        for pid in fresh:  # one that is stopped starts no further ones
            _send(pid, signal.SIGSTOP)
        found |= fresh
    for pid in found:
        _send(pid, signal.SIGKILL)


def _descendants() -> set[int]:
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):  # it may end meanwhile
            parent = int(path.read_text(errors="replace").rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(path.parent.name))
    found = [os.getpid()]
    for pid in found:
        found += children.get(pid, [])
    return set(found[1:])


def _send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


@contextmanager
def _handled(numbers: tuple[signal.Signals, ...], handler: Callable[[signal.Signals, Any], Handler]) -> Iterator[None]:
    with ExitStack() as changed:
        for number in numbers if threading.current_thread() is threading.main_thread() else ():
            before = signal.getsignal(number)
            if before is not signal.SIG_IGN:
                signal.signal(number, handler(number, before))
                changed.callback(signal.signal, number, before)
        yield


def _as_before(number: signal.Signals, handler: Any) -> None:
    if callable(handler):
        handler(number, None)
    else:
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)
