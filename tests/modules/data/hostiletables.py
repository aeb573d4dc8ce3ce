"""Data folders as an attacker writes them: each function fills `root/NAME` and returns the dataset's name.

`CANARY` is what nothing may create.
"""

import io
import json
import os
import struct
import zlib
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

CANARY = "canary"
DIGITS = tuple("0123456789")


def png(width: int = 28, height: int = 28, *, empty: bool = False) -> bytes:
    """A grey picture; an `empty` one says its size and holds next to nothing, so that any size is small."""
    if not empty:
        buffer = io.BytesIO()
        Image.new("L", (width, height), 7).save(buffer, "PNG")
        return buffer.getvalue()

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"\0" * 64)) + chunk(b"IEND", b"")


@lru_cache
def bomb(edge: int) -> bytes:
    """A whole black picture of edge x edge pixels, a thousandth of that on disk."""
    buffer = io.BytesIO()
    Image.new("1", (edge, edge)).save(buffer, "PNG", optimize=False)
    return buffer.getvalue()


def pictures(
    root: Path,
    pictures: Any = None,
    labels: Any = None,
    *,
    name: str = "mnist",
    said: dict[str, Any] | None = None,
    **columns: Any,
) -> str:
    """Both splits of a dataset of pictures; `said` is what the file says of its columns to `datasets`."""
    pictures = [png()] * 20 if pictures is None else pictures
    labels = pa.array([i % 10 for i in range(20)]) if labels is None else labels
    struct_ = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    cells = [cell if isinstance(cell, dict | None) else {"bytes": cell, "path": None} for cell in pictures]
    table = {"image": pa.array(cells, struct_), "label": labels} | columns
    return splits(root, name, pa.table({key: value for key, value in table.items() if value is not None}), said)


def texts(root: Path, texts: Any = None, labels: Any = None, **columns: Any) -> str:
    texts = pa.array([f"news {i}" for i in range(20)]) if texts is None else texts
    labels = pa.array([i % 4 for i in range(20)]) if labels is None else labels
    table = {"text": texts, "label": labels} | columns
    return splits(root, "ag_news", pa.table({key: value for key, value in table.items() if value is not None}))


def splits(root: Path, name: str, table: pa.Table, said: Any = None, **options: Any) -> str:
    if said is not None:
        table = table.replace_schema_metadata({"huggingface": said if isinstance(said, str) else json.dumps(said)})
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    for split in ("train", "test"):
        pq.write_table(table, folder / f"{split}-0.parquet", **options)
    return name


def features(**types: Any) -> dict[str, Any]:
    return {"info": {"features": types}}


def raw(root: Path, content: bytes, name: str = "ag_news", file: str = "train-0.parquet") -> str:
    texts(root)
    (root / name).mkdir(exist_ok=True)
    (root / name / file).write_bytes(content)
    return name


def special(root: Path, make: Callable[[Path], object]) -> str:
    """Something else in place of the training file."""
    texts(root)
    file = root / "ag_news" / "train-0.parquet"
    file.unlink()
    make(file)
    return "ag_news"


def truncated(root: Path) -> str:
    texts(root)
    file = root / "ag_news" / "train-0.parquet"
    return raw(root, file.read_bytes()[:-20])


def flipped(root: Path, at: float) -> str:
    """Some bytes of the pages are others."""
    texts(root, pa.array([f"news {i} " * 9 for i in range(400)]), pa.array([i % 4 for i in range(400)]))
    content = bytearray((root / "ag_news" / "train-0.parquet").read_bytes())
    place = int(at * len(content))
    content[place : place + 24] = b"\xff" * 24
    return raw(root, bytes(content))


def same_text(root: Path, megabytes: int, rows: int) -> str:
    """One text that stands in every row: once in the file."""
    column = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array(["x" * (megabytes << 20)]))
    return splits(
        root,
        "ag_news",
        pa.table({"text": column, "label": pa.array([i % 4 for i in range(rows)])}),
        compression="zstd",
        store_schema=False,
    )


def eps(root: Path) -> str:
    """PostScript, which PIL has Ghostscript run."""
    said = f"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 28 28\n%%EndComments\n({root / CANARY}) (w) file closefile\n"
    return pictures(root, [said.encode()] * 20)


def numbers(label: Any) -> pa.Array:
    """Right labels but for one."""
    return pa.array([i % 10 for i in range(19)] + [label])


def lines(root: Path, content: bytes, name: str = "longbench_trec", file: str = "test.jsonl") -> str:
    (root / name).mkdir(parents=True, exist_ok=True)
    (root / name / file).write_bytes(content)
    return name


LONG = {"context": "c", "input": "i", "answers": ["a"], "all_classes": None}
NAMES = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]
# what is wrong -> the folder, and what the line says of it
TABLES: dict[str, tuple[Callable[[Path], str], str]] = {
    "no label column": (lambda root: texts(root, labels=None, label=None), "no column 'label'"),
    "other columns": (
        lambda root: splits(root, "mnist", pa.table({"a\x1b[2J\n": [1], "b": [2]})),
        "none of the columns",
    ),
    "labels NaN": (lambda root: pictures(root, labels=numbers(float("nan"))), "label"),
    "labels float": (lambda root: pictures(root, labels=pa.array([0.5] * 20)), "label"),
    "labels null": (lambda root: pictures(root, labels=numbers(None)), "label"),
    "labels negative": (lambda root: pictures(root, labels=numbers(-3)), "label"),
    "labels too large": (lambda root: pictures(root, labels=numbers(10)), "label"),
    "labels of 63 bits": (lambda root: pictures(root, labels=numbers(2**62)), "label"),
    "labels of 64 bits": (lambda root: pictures(root, labels=pa.array([2**64 - 1] * 20, pa.uint64())), "label"),
    "labels text": (lambda root: pictures(root, labels=pa.array(["seven"] * 20)), "label"),
    "labels lists": (lambda root: pictures(root, labels=pa.array([[1, 2]] * 20)), "label"),
    "labels times": (lambda root: pictures(root, labels=pa.array([1] * 20, pa.timestamp("s"))), "label"),
    "labels missing names": (
        lambda root: pictures(root, said=features(image={"_type": "Image"}, label={"_type": "ClassLabel"})),
        "",
    ),
    "no rows": (lambda root: texts(root, pa.array([], pa.string()), pa.array([], pa.int64())), "no rows"),
    "texts null": (lambda root: texts(root, pa.array([None] * 20, pa.string())), "text"),
    "texts numbers": (lambda root: texts(root, pa.array(range(20))), "text"),
    "texts bytes": (lambda root: texts(root, pa.array([b"\xff\xfe"] * 20)), "text"),
    "truncated": (truncated, "train-0.parquet"),
    "not parquet": (lambda root: raw(root, b"import os\nos.system('touch canary')\n" * 99), "train-0.parquet"),
    "empty file": (lambda root: raw(root, b""), "train-0.parquet"),
    "bytes flipped": (lambda root: flipped(root, 0.3), "train-0.parquet"),
    "footer flipped": (lambda root: flipped(root, 0.97), "train-0.parquet"),
    "no picture": (lambda root: pictures(root, [b"no picture"] * 20), "row 0"),
    "picture null": (lambda root: pictures(root, [None] * 20), "row 0"),
    "picture by path": (lambda root: pictures(root, [{"bytes": None, "path": "/etc/hostname"}] * 20), "row 0"),
    "picture by fifo": (lambda root: by_fifo(root), "row 0"),
    "picture by address": (
        lambda root: pictures(root, [{"bytes": None, "path": "https://127.0.0.1:9/x.png"}] * 20),
        "row 0",
    ),
    "picture of 30,000 x 30,000": (lambda root: pictures(root, [bomb(30_000)] * 2, pa.array([0, 1])), "row 0"),
    "pictures of 13,000 x 13,000": (lambda root: pictures(root, [bomb(13_000)] * 20), "row 0"),
    "picture cut": (lambda root: pictures(root, [png(90, 90, empty=True)] * 20), "row 0"),
    "PostScript": (eps, "row 0"),
    "column of strings": (lambda root: splits(root, "mnist", pa.table({"image": ["/etc/hostname"], "label": [1]})), ""),
    "image nested": (
        lambda root: splits(root, "mnist", pa.table({"image": [[[{"bytes": b""}]]], "label": [1]})),
        "image",
    ),
    "features unknown": (lambda root: pictures(root, said=features(image={"_type": "os.system"})), ""),
    "features no JSON": (lambda root: pictures(root, said="{" * 99), ""),
    "features deep": (lambda root: pictures(root, said="[" * 100_000), ""),
    "one text in 20,000 rows": (lambda root: same_text(root, 16, 20_000), "train-0.parquet"),
    "fifo": (lambda root: special(root, os.mkfifo), "plain file"),
    "device": (lambda root: special(root, lambda file: file.symlink_to("/dev/zero")), "plain file"),
    "folder": (lambda root: special(root, Path.mkdir), "plain file"),
    "link to itself": (lambda root: special(root, lambda file: file.symlink_to(file.name)), "plain file"),
    "broken link": (lambda root: special(root, lambda file: file.symlink_to("nowhere")), "plain file"),
    "link to no parquet": (lambda root: special(root, lambda file: file.symlink_to("/etc/passwd")), "train-0.parquet"),
    "name as an address": (
        lambda root: special(root, lambda file: file.with_name("train::http:..127.0.0.1.parquet").write_bytes(b"")),
        "",
    ),
    "lines no JSON": (lambda root: lines(root, b"{no json\n" * 9), "test.jsonl"),
    "lines deep": (lambda root: lines(root, b"[" * 200_000), "test.jsonl"),
    "lines no objects": (lambda root: lines(root, b"1\n2\n"), "test.jsonl"),
    "lines lack a column": (lambda root: lines(root, b'{"context": "c"}\n'), "no column"),
    "lines of other types": (lambda root: lines(root, json.dumps(LONG | {"context": 7}).encode()), "context"),
    "lines no UTF-8": (lambda root: lines(root, b'{"context": "\xff\xff"}\n'), "test.jsonl"),
    "text no UTF-8": (lambda root: lines(root, b"\xff\xfe\xff", "paul_graham_essays", "train.txt"), "train.txt"),
    "text a fifo": (lambda root: text_fifo(root), "plain file"),
    "text of 3 GB": (lambda root: sparse(root), "train.txt"),
}


def by_fifo(root: Path) -> str:
    os.mkfifo(root / "pipe")
    return pictures(root, [{"bytes": None, "path": str(root / "pipe")}] * 20)


def text_fifo(root: Path) -> str:
    (root / "paul_graham_essays").mkdir()
    os.mkfifo(root / "paul_graham_essays" / "train.txt")
    return "paul_graham_essays"


def sparse(root: Path) -> str:
    """Zeros that take no room on the disk."""
    lines(root, b"", "paul_graham_essays", "train.txt")
    os.truncate(root / "paul_graham_essays" / "train.txt", 3 << 30)
    return "paul_graham_essays"
