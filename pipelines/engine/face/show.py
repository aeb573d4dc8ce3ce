"""How results look in a notebook: tables and pictures."""

import base64
import io
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from featurelab.pipelines.engine.libraries import pd

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class Picture:
    """A drawing that notebooks show. `figure` is the matplotlib figure, whose axes can be changed."""

    figure: "Figure"

    def png(self) -> bytes:
        """Return the picture as a PNG file."""
        from featurelab.pipelines.engine.experiment.drawing import style

        content = io.BytesIO()
        with style():
            self.figure.savefig(content, format="png")
        return content.getvalue()

    def save(self, path: str | Path) -> Path:
        """Write the picture to `path`, in the format of its suffix, and return the path. Raises as matplotlib does."""
        self.figure.savefig(path)
        return Path(path)

    def _repr_png_(self) -> bytes:
        return self.png()


def page(title: str, table: pd.DataFrame, picture: Picture | None = None) -> str:
    """Return a title, a table and a picture as HTML."""
    parts = [f"<p><b>{escape(title)}</b></p>", table.to_html(index=False, border=0, max_rows=30)]
    if picture:
        parts.append(f'<img src="data:image/png;base64,{base64.b64encode(picture.png()).decode()}"/>')
    return "\n".join(parts)
