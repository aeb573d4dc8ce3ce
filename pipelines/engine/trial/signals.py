"""Signals that end a process: as exceptions where something must be closed first, otherwise at once."""

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
SAME = 1.0  # seconds within which a second signal counts as the first: a closed terminal sends SIGHUP more than once

Handler = Callable[[int, FrameType | None], Any]


class Terminated(BaseException):
    """A signal asks this process to end. Not an `Exception`, so that nobody handles it as a failure."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number
        self.status = 128 + number  # the exit status that shells report for this signal


class StopSweep(Exception):
    """The reason to end a sweep early; `advice` says what the user can do."""

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
    """Inside, a signal to end calls `leave(number)`, which ends this process.

    An exception is not enough: Python ignores one that is raised in a callback of a weak reference, and imports and Ray
    have such callbacks. A process started to ignore a signal (nohup) still ignores it. Outside the main thread, this
    does nothing, and neither do `raised` and `held_back`.
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
    """Inside, a signal to end raises `error(number)`. Yields the list of signals that were received.

    A second signal ends the process at once: whoever sends it does not want to wait.
    """
    received: list[int] = []
    since = 0.0

    def handler(number: signal.Signals, before: Any) -> Handler:
        def end(_: int, frame: FrameType | None) -> None:
            nonlocal since
            if received:
                if time.monotonic() - since > SAME:
                    _leave(number) if _leave else _as_before(number, before)
                return
            since = time.monotonic()
            received.append(number)
            raise error(number)

        return end

    def send_again(ignored: Any) -> None:
        """Send the signal again: our exception was raised where Python ignores exceptions."""
        if received and isinstance(ignored.exc_value, (KeyboardInterrupt, Terminated)):
            number = received.pop()
            threading.Timer(0.05, os.kill, (os.getpid(), number)).start()
        else:
            previous_hook(ignored)

    previous_hook = sys.unraisablehook
    sys.unraisablehook = send_again
    try:
        with _handled(ENDING, handler):
            yield received
    finally:
        sys.unraisablehook = previous_hook


class HeldSignals:
    """Signals that wait, except inside `let_through`."""

    def __init__(self) -> None:
        self._waiting: list[Callable[[], Any]] = []
        self._through = False
        self.passed = False  # whether a signal has been passed on

    @contextmanager
    def let_through(self) -> Iterator[None]:
        """Inside, signals act at once, those first that have waited."""
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
def held_back() -> Iterator[HeldSignals]:
    """Inside, the first signal to end waits until the block is done; a second one does not wait."""
    signals = HeldSignals()
    with _handled(ENDING, signals.handler):
        yield signals
    signals.pass_on()


def kill_descendants() -> None:
    """Kill the child processes of this process, and their children, and so on."""
    stopped: set[int] = set()
    while running := _descendants() - stopped:
        for pid in running:  # a stopped process starts no further ones
            _send(pid, signal.SIGSTOP)
        stopped |= running
    for pid in stopped:
        _send(pid, signal.SIGKILL)


def _descendants() -> set[int]:
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):  # the process may have ended
            parent = int(path.read_text(errors="replace").rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(path.parent.name))
    pids = [os.getpid()]
    for pid in pids:
        pids += children.get(pid, [])
    return set(pids[1:])


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
