"""Find the other project that is called featurelab on PyPI: its files and ours share one folder and one command.

Ours is the distribution `feature-learning-lab`. This is read at each first import, so it takes a look at folders only:
importlib.metadata would take ten times as long as all else.
"""

import os
import sys
import warnings

OURS = b"The open laboratory for feature learning"  # how our summary begins, also in checkouts of the former name


def found() -> str:
    """Return version and place of another project's `featurelab` on the path, empty where there is none."""
    for folder in dict.fromkeys(sys.path):
        try:
            names = [name for name in os.listdir(folder or ".") if name.startswith("featurelab-")]
        except OSError:
            continue
        for name in names:
            version = name.removesuffix(".dist-info").removeprefix("featurelab-")
            if version != name.removeprefix("featurelab-") and not _is_ours(os.path.join(folder, name, "METADATA")):
                return f"{version} in {os.path.abspath(folder)}"
    return ""


def message(where: str) -> str:
    """Return one line about what `found` has found: what is wrong, and what to do."""
    return (
        f"another project's package featurelab {where} shares folder and command with this one: run "
        "`pip uninstall featurelab`, then install feature-learning-lab again"
    )


def warn() -> None:
    """Warn in one line where there is another project's `featurelab`."""
    if where := found():
        warnings.warn_explicit(message(where), UserWarning, "<featurelab>", 1)


def _is_ours(facts: str) -> bool:
    try:
        with open(facts, "rb") as file:
            return b"\nSummary: " + OURS in file.read(4000).replace(b"\r\n", b"\n")
    except OSError:
        return False
