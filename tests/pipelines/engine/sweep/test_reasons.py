"""Reasons are what an error says, never a traceback folded into a line."""

import pytest

from featurelab.pipelines.engine.sweep.ray.reasons import cause

REMOVED = """Traceback (most recent call last):
  File "/ray/air/execution/_internal/event_manager.py", line 110, in resolve_future
    result = ray.get(future)
             ^^^^^^^^^^^^^^^
ray.exceptions.RaySystemError: System error: cannot reach the raylet
  more of it

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/ray/tune/execution/tune_controller.py", line 1, in step
    open(path)
FileNotFoundError: [Errno 2] No such file or directory: '/tmp/cut/error.pkl'
"""


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (RuntimeError(REMOVED), "FileNotFoundError: [Errno 2] No such file or directory: '/tmp/cut/error.pkl'"),
        (f"ray::Trial.train() (pid=1)\n{REMOVED.partition('During')[0]}", "RaySystemError: System error: cannot reach"),
        (RuntimeError("Traceback (most recent call last):\n"), "RuntimeError"),
        (ValueError("two lines\nof words"), "two lines of words"),
        (KeyError(), "KeyError"),
    ],
)
def test_the_cause_is_said_without_the_traceback(error, said):
    assert cause(error).startswith(said)
    assert "Traceback" not in cause(error)
    assert "File" not in cause(error).split(":")[0].replace("FileNotFound", "")
