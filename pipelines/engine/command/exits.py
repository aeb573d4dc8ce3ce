"""How the command ends: with which exit status, and with which last line on standard error."""

import atexit
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any, NoReturn

from typer.exceptions import Abort, TyperException

from featurelab.pipelines.engine.errors import RequestError, RunError, Verbosity, is_verbose, set_verbosity, tell
from featurelab.pipelines.engine.trial.signals import Terminated, at_once, kill_descendants, last_line
from featurelab.tracking.errors import StoreError, disk_full
from featurelab.tracking.lines import escaped, line, masked

INTERRUPTED = 128 + signal.SIGINT  # shells report a signal as 128 plus its number


def status_of(command: Callable[[], Any]) -> Any:
    """Run `command` and return its exit status: 2 for a wrong request, 1 for a failed run, 130 on Ctrl-C.

    An error that a user can act on becomes one line on standard error; any other one is raised.
    """
    set_verbosity(Verbosity.NORMAL)
    warnings.filterwarnings("ignore")
    try:
        status = command()
    except (RequestError, StoreError) as error:
        _show_traceback(error)
        tell(f"featurelab: {line(str(error))}")
        status = 2
    except RunError as error:
        _show_traceback(error)
        tell(f"featurelab: {line(str(error))}")
        status = 1
    except TyperException as error:
        if message := error.format_message():
            tell(f"featurelab: {line(message)}")
        status = error.exit_code
    except Terminated as end:
        status = end.status
    except (KeyboardInterrupt, Abort):
        status = INTERRUPTED
    except SystemExit as end:
        status = end.code
    except BaseException as error:
        if "mlflow" in sys.modules and isinstance(error, sys.modules["mlflow"].MlflowException):
            tell(f"featurelab: the store refuses: {line(str(error))}")
            status = 2
        elif full := disk_full(error):
            tell(f"featurelab: {full}")
            status = 1
        else:
            raise
    if isinstance(status, int) and status > 128:
        last_line.printed = True
        tell(f"featurelab: {last_line.text(status - 128)}")
    return status or 0


def _show_traceback(error: Exception) -> None:
    if is_verbose():
        tell(escaped("".join(traceback.format_exception(error)).rstrip(), keep="\n"))


def end_process_after(main: Callable[[], None]) -> NoReturn:
    """Run `main` and end this process with its status, without the second that Python takes to unload its modules."""
    with at_once(_on_signal()), ExitStack() as closing:
        try:
            main()
        except SystemExit as end:
            closing.callback(_end_process, end.code if isinstance(end.code, int) else 1)
    raise AssertionError("main did not exit")


def _on_signal() -> Callable[[int], NoReturn]:
    """Return the function that ends this process and its children on a signal, after one line on standard error."""
    stderr = os.dup(2)  # file descriptor 2 is another file while Ray's lines are held back
    end = os._exit  # replaced while a package of somebody else is imported

    def end_on(number: int) -> NoReturn:
        show_cursor = "\x1b[?25h" if os.isatty(stderr) else ""  # a progress bar hides it
        message = "" if last_line.printed else escaped(masked(f"featurelab: {last_line.text(number)}")) + "\n"
        with suppress(OSError):
            os.write(stderr, f"{show_cursor}{message}".encode())
        kill_descendants()
        end(128 + number)

    return end_on


def _end_process(status: int) -> NoReturn:
    atexit._run_exitfuncs()
    with suppress(OSError, ValueError):  # whoever read our output may be gone
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)
