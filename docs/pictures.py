"""Put the newest drawings and maps of the store into docs/images, where the atlas of the site shows them.

    python docs/pictures.py [EXPERIMENT|SYSTEM ...]

Drawings at laptop scale go to `figures`, those on real data (desktop scale) to `real_data`. A picture has at most 1,200
pixels in width and 256 colours, which keeps it at some 30 kB.
"""

import io
import sys
from pathlib import Path

from PIL import Image

from featurelab.pipelines.engine.experiment.catalogue import registry
from featurelab.pipelines.engine.experiment.config import Scale
from featurelab.pipelines.engine.verdict.maps.entries import map_entries
from featurelab.pipelines.engine.verdict.report import report_entries
from featurelab.tracking.store.connect import connect

IMAGES = Path(__file__).parent / "images"
FOLDERS: dict[Scale, str] = {"laptop": "figures", "desktop": "real_data"}
WIDEST = 1200
COLOURS = 256


def write(png: bytes, file: Path) -> None:
    """Write a picture, smaller and with few colours."""
    picture = Image.open(io.BytesIO(png)).convert("RGB")
    picture.thumbnail((WIDEST, 10 * WIDEST))
    file.parent.mkdir(exist_ok=True)
    # the other methods merge the colours of thin lines, since few pixels have them
    few = picture.quantize(COLOURS, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    few.save(file, optimize=True)
    print(file.relative_to(IMAGES.parent), file.stat().st_size)


def main(asked: list[str]) -> None:
    names = {experiment.name for experiment in registry.select(asked)}
    store = connect(create=False)
    for scale, folder in FOLDERS.items():
        for entry in report_entries(store, scale):
            if entry["name"] in names and entry.get("png"):
                write(entry["png"], IMAGES / folder / f"{entry['name'].replace('/', '.')}.png")
    for entry in map_entries(store):
        if entry["name"] in names and entry.get("scale") == "laptop":
            for index, (_, png) in enumerate(entry.get("pictures", [])):
                write(png, IMAGES / "maps" / f"{entry['name'].replace('/', '.')}.{index}.png")


if __name__ == "__main__":
    main(sys.argv[1:])
