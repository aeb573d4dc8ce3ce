"""Send a journal from a new process, after the trial has closed the file descriptors of the one that wrote it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TIMEOUT = 60.0  # seconds
SCRIPT = """
import os, sys
from pathlib import Path
from featurelab.tracking.outbox.sync import sync
sync(Path(sys.argv[1]), known=os.environ["MLFLOW_TRACKING_URI"])
"""


def sync_in_subprocess(journal: Path, uri: str) -> bool:
    """Send what waits in the outbox of a journal to the store at `uri`, and return whether this journal was sent."""
    command = [sys.executable, "-c", SCRIPT, str(journal.parent)]
    environment = os.environ | {"MLFLOW_TRACKING_URI": uri}  # not an argument: it may hold a password
    null = subprocess.DEVNULL
    try:
        subprocess.run(command, env=environment, timeout=TIMEOUT, check=False, stdin=null, stdout=null, stderr=null)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return not journal.exists()
