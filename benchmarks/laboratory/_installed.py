"""Make `_nothing` an installed package of experiments, for this process and those that it starts."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def installed() -> Iterator[None]:
    with tempfile.TemporaryDirectory() as folder:
        facts = Path(folder) / "nothing-1.0.dist-info"
        facts.mkdir()
        (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: nothing\nVersion: 1.0\n")
        (facts / "entry_points.txt").write_text("[featurelab.experiments]\nnothing = benchmarks.laboratory._nothing\n")
        before = os.environ.get("PYTHONPATH", "")
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), folder, before]))
        sys.path.append(folder)
        try:
            yield
        finally:
            sys.path.remove(folder)
            os.environ["PYTHONPATH"] = before
