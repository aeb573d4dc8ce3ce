"""The faces of families and rooms: every name is found, and no file of a room hides a function."""

import importlib
from pathlib import Path

import pytest

from featurelab import modules

ROOT = Path(modules.__file__).parent
FACES = sorted(".".join(path.parent.relative_to(ROOT).parts) for path in ROOT.rglob("__init__.py"))


def inside(face: str) -> set[str]:
    """The files and rooms of a room, by the names of their modules."""
    here = ROOT.joinpath(*face.split("."))
    return {p.stem for p in here.iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()} - {"__init__"}


@pytest.mark.parametrize("face", [face for face in FACES if face])
def test_every_name_of_a_face_is_found_and_is_not_hidden_by_a_file(face: str) -> None:
    """A file is set as an attribute of its room once it is imported: it would hide a function of the same name."""
    room = importlib.import_module(f"featurelab.modules.{face}")
    names = set(room.__all__)
    for name in inside(face):
        importlib.import_module(f"featurelab.modules.{face}.{name}")
    for name in names:
        found = getattr(room, name)
        assert (type(found).__name__ == "module") == (name in inside(face)), name


def test_every_room_has_a_face() -> None:
    for folder in (path for path in ROOT.rglob("*") if path.is_dir() and path.name != "__pycache__"):
        if any(folder.glob("*.py")):
            assert {"__init__.py", "__init__.pyi"} <= {path.name for path in folder.iterdir()}, folder


def test_a_family_has_every_name_of_its_rooms() -> None:
    for family in ("data", "learners", "measures", "nets"):
        root = importlib.import_module(f"featurelab.modules.{family}")
        for room in (name for name in root.__all__ if name in inside(family)):
            missing = set(getattr(root, room).__all__) - set(root.__all__)
            assert not missing, f"{family} does not list {missing} of {room}"
