"""Tags that only featurelab reads. They are stored under names that MLflow's pages (3.17) do not show.

Code that writes or reads a tag through the store uses its plain name, under which earlier versions stored it.
"""

from collections.abc import Mapping
from typing import Any

from mlflow.entities import Run

PREFIX = "mlflow.featurelab."  # the pages hide all tags that begin with `mlflow.`
HIDDEN = frozenset({"axes", "command", "driver", "gpus", "plan_digest", "seen", "workers"})


def stored(name: str) -> str:
    """Return the name under which a tag is stored."""
    return PREFIX + name if name in HIDDEN else name


def names_of(name: str) -> list[str]:
    """Return all names under which a tag may have been stored, by this version or an earlier one."""
    return [stored(name), name] if name in HIDDEN else [name]


def plain(tags: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return tags under their plain names, where all names begin with `prefix`.

    A tag that was stored under its hidden name replaces one that an earlier version stored under the plain name.
    """
    plain_names = {prefix + PREFIX + name: prefix + name for name in HIDDEN}
    ours = {plain_names[name]: value for name, value in tags.items() if name in plain_names}
    return {name: value for name, value in tags.items() if name not in plain_names} | ours


def with_plain_tags(run: Run) -> Run:
    """Change the tags of a run to their plain names, and return the run."""
    tags = run.data.tags
    renamed = plain(tags)
    tags.clear()  # in place: the attribute cannot be set
    tags.update(renamed)
    return run
