"""Signals that end a process, as exceptions, so that what runs can say what became of it."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any

TELLING = (signal.SIGTERM, signal.SIGHUP)  # beside SIGINT, which Python raises as KeyboardInterrupt

Handler = Callable[[int, FrameType | None], Any]


class Terminated(BaseException):
    """A signal told this process to end; not an `Exception`, so that nothing on the way takes it for a failure."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.status = 128 + number  # the exit status that shells give a process which the signal ended


class Enough(Exception):
    """What runs shall be ended, for this reason; `advice` says what to do about it."""

    def __init__(self, reason: str, advice: str) -> None:
        super().__init__(reason)
        self.advice = advice


@contextmanager
def raised(error: Callable[[int], BaseException] = Terminated) -> Iterator[list[int]]:
    """Inside, SIGTERM and SIGHUP raise `error` of their number, unless the process was started to ignore them (nohup).

    Gives the list of those that came. Only a main thread can; in any other nothing is changed. The same holds for
    `held_back`.
    """
    came: list[int] = []

    def end(number: int, frame: FrameType | None) -> None:
        came.append(number)
        raise error(number)

    with _handled(TELLING, lambda number, before: end):
        yield came


class Held:
    """Signals that wait, but for the time in which they are let through."""

    def __init__(self) -> None:
        self._waiting: list[Callable[[], Any]] = []
        self._through = False

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
            self._waiting.pop()()

    def handler(self, number: signal.Signals, before: Any) -> Handler:
        def handle(_: int, frame: FrameType | None) -> None:
            if self._through or self._waiting:
                _as_before(number, before)
            self._waiting.append(lambda: _as_before(number, before))

        return handle


@contextmanager
def held_back() -> Iterator[Held]:
    """Inside, the first signal to end waits until what must not be cut in two is done; a second one does not."""
    held = Held()
    with _handled((signal.SIGINT, *TELLING), held.handler):
        yield held
    held.pass_on()


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
