"""Send a journal from a process of its own, where the one that wrote it has lost its file descriptors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

LONGEST = 60.0  # seconds
SENDING = """
import os, sys
from pathlib import Path
from featurelab.tracking.outbox.sync import sync
sync(Path(sys.argv[1]), known=os.environ["MLFLOW_TRACKING_URI"])
"""


def send_from_another_process(journal: Path, uri: str) -> bool:
    """Send what waits in the outbox of a journal, and say whether this journal has arrived."""
    command = [sys.executable, "-c", SENDING, str(journal.parent)]
    known = os.environ | {"MLFLOW_TRACKING_URI": uri}  # not an argument: it may hold a password
    null = subprocess.DEVNULL
    try:
        subprocess.run(command, env=known, timeout=LONGEST, check=False, stdin=null, stdout=null, stderr=null)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return not journal.exists()
