"""Pages of the API: every name of a family, from the stubs that list them, rendered by mkdocstrings."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FAMILIES = {
    "featurelab": ("featurelab", "The functions of `import featurelab as fl`."),
    "measures": ("modules/measures", "Instruments for any network, as functions of modules and tensors."),
    "probes": ("modules/probes", "Lightning callbacks that measure a network while it trains."),
    "nets": ("modules/nets", "Architectures as plain modules."),
    "learners": ("modules/learners", "How a network is trained."),
    "data": ("modules/data", "Datasets and generators."),
    "decoding": ("modules/decoding", "Generation from a part of the prompt."),
    "language": ("modules/language", "Published language models."),
    "pipelines": ("pipelines", "The words in which a figure is written."),
}


def pages() -> dict[str, str]:
    """Return the Markdown of each page of the API, by its place in the site."""
    rows = "\n".join(f"- [`{name}`]({name}.md): {about}" for name, (_, about) in FAMILIES.items())
    written = {"api/index.md": f"# API\n\nEvery public name, with formula, shapes and source.\n\n{rows}\n"}
    for family, (folder, about) in FAMILIES.items():
        title = "featurelab" if family == "featurelab" else f"featurelab.{family}"
        lines = [f"# {title}", "", about, ""]
        names = dict(exported(ROOT / folder))
        for name in sorted(names, key=str.lower):
            lines += [f"::: {names[name]}", ""]
        written[f"api/{family}.md"] = "\n".join(lines)
    return written


def exported(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield each function and class that a package's stub exports, with the path where it is defined."""
    for name, file in _imports(folder / "__init__.pyi"):
        if defined := _defined(name, file):
            yield name, defined


def _imports(stub: Path) -> Iterator[tuple[str, Path]]:
    """Yield the names that a stub imports from files and folders below it, with these."""
    for node in ast.parse(stub.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module:
            for alias in node.names:
                yield alias.name, stub.parent.joinpath(*node.module.split("."))


def _defined(name: str, place: Path) -> str | None:
    """Return the path of a function or class that `place` defines or passes on; None for a module or a constant."""
    if (place / "__init__.pyi").is_file():
        return next(
            (_defined(other, inner) for other, inner in _imports(place / "__init__.pyi") if other == name), None
        )
    file = place.with_suffix(".py") if place.with_suffix(".py").is_file() else place / "__init__.py"
    if not file.is_file():
        return None
    kinds = ast.FunctionDef | ast.ClassDef
    if not any(isinstance(node, kinds) and node.name == name for node in ast.parse(file.read_text("utf-8")).body):
        return None
    module = ".".join(place.relative_to(ROOT).parts)
    return f"{module if module.startswith('featurelab.') else f'featurelab.{module}'}.{name}"
