"""Pages of the notebooks in examples/, with the outputs that are stored in them."""

from pathlib import Path

import nbformat
from generator import links
from nbconvert import MarkdownExporter

FOLDER = Path(__file__).parents[2] / "examples"


def names() -> list[str]:
    """Return the names of the notebooks, in their order."""
    return sorted(file.stem for file in FOLDER.glob("*.ipynb"))


def pages() -> dict[str, str | bytes]:
    """Return the page of each notebook and the pictures on it, by their place in the site."""
    written: dict[str, str | bytes] = {}
    for name in names():
        notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
        for cell in notebook.cells:
            if cell.cell_type == "markdown":
                cell.source = links.rewritten(cell.source, f"examples/{name}.ipynb")
        resources = {"unique_key": name, "output_files_dir": f"{name}_files"}
        text, resources = MarkdownExporter().from_notebook_node(notebook, resources)
        heading, _, rest = text.lstrip().partition("\n")
        download = (
            f"Download [the notebook](../source/examples/{name}.ipynb) and run it in the environment of featurelab."
        )
        written[f"notebooks/{name}.md"] = f"{heading}\n\n{download}\n{rest}"
        written[f"source/examples/{name}.ipynb"] = (FOLDER / f"{name}.ipynb").read_bytes()
        written |= {f"notebooks/{path}": content for path, content in resources["outputs"].items()}
    return written
