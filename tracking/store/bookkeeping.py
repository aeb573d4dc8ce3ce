"""Tags that the machinery reads and people do not: stored under names that MLflow's pages (3.17) do not show.

Whoever writes or reads a tag through the store uses its plain name. Stores of earlier versions have them under that.
"""

from collections.abc import Mapping
from typing import Any

from mlflow.entities import Run

PREFIX = "mlflow.featurelab."  # the pages hide every tag that begins with `mlflow.`
HIDDEN = frozenset({"axes", "command", "driver", "gpus", "plan_digest", "seen", "workers"})


def stored(name: str) -> str:
    """The name under which a tag is stored."""
    return PREFIX + name if name in HIDDEN else name


def names_of(name: str) -> list[str]:
    """All names under which a tag may have been stored."""
    return [stored(name), name] if name in HIDDEN else [name]


def plain(tags: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Tags under their plain names, in place of what an earlier version stored there; `before` begins each name."""
    hidden = {before + PREFIX + name: before + name for name in HIDDEN}
    ours = {hidden[name]: value for name, value in tags.items() if name in hidden}
    return {name: value for name, value in tags.items() if name not in hidden} | ours


def with_plain_tags(run: Run) -> Run:
    """A run as MLflow gives it, its tags under their plain names."""
    tags = run.data.tags  # the dict itself
    found = plain(tags)
    tags.clear()
    tags.update(found)
    return run
