"""Puts `publicfiles`, which writes small public datasets, on the path of the tests here."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "pipelines"))
