"""Signals end a process in time, also where Python ignores exceptions, and a second one at once."""

import signal
import subprocess
import sys
import textwrap
import time
from contextlib import suppress
from pathlib import Path

import pytest

BEFORE = """
import os, signal, subprocess, sys, time, weakref
from featurelab.pipelines.engine.trial import signals

signal.signal(signal.SIGHUP, signal.SIG_DFL)  # tests under nohup hand down that it is ignored

def leave(number):
    signals.kill_descendants()
    os._exit(128 + number)

def send(number):
    os.kill(os.getpid(), number)
    time.sleep(0.01)
"""


def status(code: str, **options: object) -> int:
    return subprocess.run([sys.executable, "-c", BEFORE + textwrap.dedent(code)], timeout=60, **options).returncode


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_in_a_callback_that_can_raise_nothing_is_not_lost(number):
    code = f"""
    class Thing: pass
    try:
        with signals.raised() as came:
            thing = Thing()
            kept = weakref.ref(thing, lambda reference: send({number}))
            del thing  # here Python ignores what the handler raises
            time.sleep(20)
    except (KeyboardInterrupt, signals.Terminated):
        os._exit(100 + came[0])
    """
    assert status(code) == 100 + number


def test_a_second_signal_ends_at_once_but_not_one_that_comes_with_the_first():
    code = """
    with signals.at_once(leave):
        try:
            with signals.raised(), signals.held_back() as held, held.let_through():
                send(signal.SIGHUP)
        except signals.Terminated as first:
            os._exit(99)
    """
    assert status(code) == 99
    closing = """
    with signals.at_once(leave), signals.raised(), signals.held_back() as held:
        try:
            with held.let_through():
                send(signal.SIGHUP)
        except signals.Terminated as first:
            send(signal.SIGHUP)  # as a terminal that is closed sends it twice
            if %r:
                time.sleep(1.2)
                send(signal.SIGTERM)
            os._exit(99)
    """
    assert status(closing % False) == 99
    assert status(closing % True) == 128 + signal.SIGTERM


def test_what_waits_is_passed_on_as_soon_as_it_may_be():
    code = """
    with signals.at_once(leave):
        try:
            with signals.raised(), signals.held_back() as held:
                send(signal.SIGTERM)
                held_so_far = True
                with held.let_through():
                    os._exit(98)
        except signals.Terminated:
            os._exit(99 if held_so_far else 97)
    """
    assert status(code) == 99


def test_what_is_ended_at_once_takes_its_processes_along(tmp_path: Path):
    code = f"""
    with signals.at_once(leave):
        nested = "import subprocess; subprocess.Popen(['sleep', '1234.5']); import time; time.sleep(60)"
        subprocess.Popen([sys.executable, "-c", nested], start_new_session=True, cwd={str(tmp_path)!r})
        time.sleep(2)
        send(signal.SIGINT)
    """
    assert status(code) == 130
    time.sleep(0.2)
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            found.append((path / "cwd").resolve())
    assert tmp_path not in found


def test_what_was_started_to_ignore_a_signal_still_ignores_it():
    code = """
    with signals.at_once(leave), signals.raised(), signals.held_back():
        send(signal.SIGHUP)
        os._exit(99)
    """
    assert status(code, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)) == 99
