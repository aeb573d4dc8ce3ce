"""`import featurelab.measures` and its like: every family under its short name, once."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import featurelab

ROOT = Path(__file__).parents[2]
FAMILIES = ["data", "decoding", "language", "learners", "measures", "nets", "probes", "theory"]


def run(source: str) -> str:
    ran = subprocess.run([sys.executable, "-W", "error", "-c", source], capture_output=True, text=True, cwd=ROOT)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_every_family_is_imported_in_either_way_and_none_brings_torch() -> None:
    run(
        "import sys, importlib, featurelab\n"
        f"for name in {FAMILIES}:\n"
        "    found = importlib.import_module(f'featurelab.{name}')\n"
        "    assert found is getattr(featurelab, name) is importlib.import_module(f'featurelab.modules.{name}')\n"
        "    assert found.__spec__.name == f'featurelab.modules.{name}'\n"
        "assert 'torch' not in sys.modules"
    )


def test_what_is_in_a_family_is_loaded_once_under_whichever_name_comes_first() -> None:
    run(
        "import sys, pickle\n"
        "import featurelab.nets.papers.polynomial\n"
        "from featurelab.measures import nfa\n"
        "from featurelab import measures, nets\n"
        "import featurelab.modules.nets.papers.polynomial\n"
        "name = 'nets.papers.polynomial'\n"
        "assert sys.modules[f'featurelab.{name}'] is sys.modules[f'featurelab.modules.{name}']\n"
        "assert nfa is measures.nfa\n"
        "net = nets.mlp(2, 3, 1, seed=0)\n"
        "assert type(pickle.loads(pickle.dumps(net))) is type(net)"
    )


def test_a_name_that_is_no_family_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"featurelab\.nosuch"):
        __import__("featurelab.nosuch")
    with pytest.raises(ImportError):
        __import__("featurelab.measures.nosuch")


def test_type_checkers_find_every_family() -> None:
    assert sorted(featurelab.FAMILIES) == FAMILIES
    assert set(FAMILIES) < set(featurelab.__all__)
    for name in FAMILIES:
        (line,) = ast.parse((ROOT / "featurelab" / f"{name}.pyi").read_text()).body
        assert isinstance(line, ast.ImportFrom)
        assert (line.module, line.names[0].name) == (f"featurelab.modules.{name}", "*")
