"""Tests mirror the packages, so their folders are called modules, pipelines and tracking too: ours come first."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
