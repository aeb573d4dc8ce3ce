"""Decode pictures of public datasets: only from bytes, a few formats, and a bounded number of pixels.

Import it where `datasets` is installed.
"""

import warnings
from io import BytesIO
from typing import Any

import datasets
from PIL import ExifTags, Image, ImageOps

from .files import DatasetRefused

# PIL knows forty others; it has other programs read some of them (EPS: Ghostscript)
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
MOST_PIXELS = 89_478_485  # 256 MB in RGB; from here on PIL warns of a decompression bomb


class Pictures(datasets.Image):
    """A column of pictures. It does not follow paths or addresses in place of bytes."""

    def decode_example(self, value: Any, token_per_repo_id: Any = None) -> Any:
        return decoded(value)


def decoded(cell: Any) -> Any:
    """The picture of a cell, rotated as its EXIF orientation says, as `datasets` does. Raises DatasetRefused."""
    picture = opened(cell)
    try:
        picture.load()
        turned = picture.getexif().get(ExifTags.Base.Orientation) is not None
        return ImageOps.exif_transpose(picture) if turned else picture
    except MemoryError:
        raise
    except Exception as error:  # PIL raises a dozen kinds
        raise DatasetRefused(f"a picture cannot be decoded: {_first(error)}") from error


def opened(cell: Any) -> Any:
    """The picture of a cell with only its header read. Raises DatasetRefused."""
    content = cell.get("bytes") if isinstance(cell, dict) else None
    if not content:
        raise DatasetRefused("a picture has no bytes: paths and addresses in a table are not followed")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # the limit below is the same
            picture = Image.open(BytesIO(content), formats=FORMATS)
    except Image.DecompressionBombError as error:
        raise DatasetRefused(
            f"a picture has too many pixels, but at most {MOST_PIXELS:,} are allowed: {error}"
        ) from error
    except MemoryError:
        raise
    except Exception as error:
        raise DatasetRefused(
            f"a cell does not hold a picture in one of the formats {', '.join(FORMATS)}: {_first(error)}"
        ) from error
    width, height = picture.size
    if width * height > MOST_PIXELS:
        raise DatasetRefused(f"a picture has {width:,} x {height:,} pixels, but at most {MOST_PIXELS:,} are allowed")
    return picture


def _first(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0][:120]
