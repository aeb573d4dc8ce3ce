"""Data folders that somebody else has written: one line says what is wrong, and nothing in them is run or followed."""

import shutil
import signal
import subprocess
import sys
import tarfile
import zipfile

import numpy as np
import pyarrow as pa
import pytest
from hostiletables import CANARY, TABLES, bomb, lines, numbers, pictures, png, raw, same_text, texts
from hypothesis import given, settings
from hypothesis import strategies as st

from featurelab.modules.data import (
    DatasetMissing,
    DatasetRefused,
    PublicImages,
    check_dataset,
    dataset_source,
    load_split,
    public_rows,
    public_texts,
    text_rows,
)

datasets = pytest.importorskip("datasets")


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    """No network, a cache of its own, and a limit of time for what waits for ever, as a pipe does."""

    def refuse(*arguments, **options):
        raise AssertionError("a connection was opened")

    monkeypatch.setattr("socket.socket.connect", refuse)
    monkeypatch.setattr("socket.getaddrinfo", refuse)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("FEATURELAB_DATA", str(tmp_path))
    signal.signal(signal.SIGALRM, lambda *_: pytest.fail("it takes too long"))
    signal.alarm(300)
    yield
    signal.alarm(0)


def read(name):
    entry = dataset_source(name)
    if not entry.texts:
        return PublicImages(name, None, None, seed=0)
    return public_texts(name, "train") if entry.label else text_rows(name, next(iter(entry.splits)))


# of these only the pixels are wrong, which `check` does not decode
DECODED = ("picture cut",)


@pytest.mark.parametrize("wrong", TABLES)
def test_a_hostile_table_is_refused_in_one_line_and_nothing_in_it_is_run(wrong, tmp_path):
    make, said = TABLES[wrong]
    name = make(tmp_path)
    first = said.split()[0] if said else ""
    looks = [(read, first)] if wrong in DECODED else [(check_dataset, said), (read, first)]
    for look, expected in looks:
        with pytest.raises(DatasetRefused, match=expected) as caught:
            look(name)
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 500
    assert not (tmp_path / CANARY).exists()


def test_the_file_and_what_is_allowed_are_named(tmp_path):
    with pytest.raises(DatasetRefused, match=r"is -3 in row 19, labels must be whole numbers from 0 to 9"):
        load_split(pictures(tmp_path, labels=numbers(-3)), "train")
    name = pictures(tmp_path / "large", [bomb(30_000)] * 2, pa.array([0, 1]))
    with pytest.raises(
        DatasetRefused, match="mnist, train, row 0: a picture has too many pixels, but at most 89,478,485"
    ):
        check_dataset(name, root=tmp_path / "large")


def test_pictures_in_rows_are_refused_with_what_is_allowed(tmp_path):
    name = pictures(tmp_path, [png(9500, 9500, empty=True)] * 20)
    train, _ = public_rows(name, seed=0)
    with pytest.raises(DatasetRefused, match=r"9,500 x 9,500 pixels, but at most 89,478,485 are allowed"):
        next(train.pictures())
    with pytest.raises(DatasetRefused, match="9,500 x 9,500"):
        _ = train.table[0]["image"]


def test_a_good_table_of_any_integers_and_formats_is_read(tmp_path):
    for index, kind in enumerate((pa.int8(), pa.uint8(), pa.int32(), pa.uint64(), pa.int64())):
        root = tmp_path / str(index)
        pictures(root, labels=pa.array([i % 10 for i in range(20)], kind))
        assert PublicImages("mnist", None, None, seed=0, root=root).labels.train.sum() == 90
    plain = pa.table({"image": pa.array([png()] * 10, pa.binary()), "label": list(range(10))})
    from hostiletables import splits

    splits(tmp_path / "binary", "mnist", plain)
    assert len(PublicImages("mnist", None, seed=0, root=tmp_path / "binary").train[0]) == 10


def test_links_to_plain_files_are_followed(tmp_path):
    texts(tmp_path / "elsewhere")
    (tmp_path / "ag_news").mkdir()
    for split in ("train", "test"):
        file = f"{split}-0.parquet"
        (tmp_path / "ag_news" / file).symlink_to(tmp_path / "elsewhere" / "ag_news" / file)
    assert len(public_texts("ag_news", "train").texts) == 20


def test_a_folder_of_the_hub_s_name_here_does_not_stand_for_the_cached_copy(tmp_path, monkeypatch):
    texts(tmp_path / "planted")
    (tmp_path / "fancyzhx").mkdir()
    shutil.move(tmp_path / "planted" / "ag_news", tmp_path / "fancyzhx" / "ag_news")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEATURELAB_DATA")
    with pytest.raises(DatasetMissing, match="is not on this machine"):
        load_split("ag_news", "train")


def test_labels_that_are_not_public_are_read_of_no_training_or_test_split(tmp_path):
    hidden = pa.table({"sentence": ["a"] * 4, "label": [-1] * 4})
    from pyarrow.parquet import write_table

    (tmp_path / "sst2").mkdir()
    for split in ("train", "test"):
        write_table(hidden, tmp_path / "sst2" / f"{split}-0.parquet")
    assert len(load_split("sst2", "test")) == 4
    with pytest.raises(DatasetRefused, match="is -1 in row 0"):
        load_split("sst2", "train")


def test_lines_and_texts_are_read_as_before(tmp_path):
    lines(tmp_path, b'{"context": "c", "input": "i", "answers": ["a"], "all_classes": null}\n\n')
    assert text_rows("longbench_trec", "test") == [
        {"context": "c", "input": "i", "answers": ["a"], "all_classes": None}
    ]
    lines(tmp_path, "Ein Aufsatz\r\nüber".encode(), "paul_graham_essays", "a.txt")
    assert text_rows("paul_graham_essays", "train") == [{"text": "Ein Aufsatz\nüber"}]


SPENT = """
import os, resource
resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
import datasets, torch
from featurelab.modules import data

def spent(look):  # megabytes that it takes in a process of its own
    if os.fork():
        os.wait()
        return
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        look()
    except data.DatasetRefused:
        print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10, flush=True)
    os._exit(0)

spent(lambda: data.check_dataset("ag_news"))
spent(lambda: data.PublicImages("mnist", None, seed=0))
"""


def test_bombs_small_on_disk_cost_less_than_half_a_gigabyte(tmp_path):
    same_text(tmp_path, 16, 100_000)  # one text in every row: 1.6 terabytes
    assert (tmp_path / "ag_news" / "train-0.parquet").stat().st_size < 1 << 16
    pictures(tmp_path, [bomb(13_000)] * 20)  # of 169 megapixels
    done = subprocess.run([sys.executable, "-c", SPENT], capture_output=True, text=True, check=True, timeout=300)
    megabytes = [int(line) for line in done.stdout.splitlines()]
    assert len(megabytes) == 2, done.stderr
    assert max(megabytes) < 512


KINDS = st.sampled_from(
    [
        pa.int64(),
        pa.int8(),
        pa.float64(),
        pa.float32(),
        pa.string(),
        pa.bool_(),
        pa.binary(),
        pa.decimal128(9, 2),
        pa.date32(),
        pa.list_(pa.int64()),
    ]
)
CELLS = st.one_of(st.none(), st.integers(-3, 12), st.floats(), st.text(max_size=3), st.booleans())


@settings(max_examples=20, derandomize=True, database=None)
@given(st.lists(CELLS, min_size=20, max_size=20), KINDS)
def test_any_column_of_labels_is_read_as_classes_or_refused(tmp_path, cells, kind):
    try:
        labels = pa.array(cells, kind, safe=False) if kind != pa.string() else pa.array(map(str, cells))
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return
    root = tmp_path / str(len(list(tmp_path.iterdir())))
    texts(root, labels=labels)
    try:
        found = public_texts("ag_news", "train", root=root).labels
    except DatasetRefused:
        return
    assert np.isin(found, range(4)).all()
    assert found.tolist() == [int(cell) for cell in labels.to_pylist()]


@settings(max_examples=20, derandomize=True, database=None)
@given(st.data())
def test_a_parquet_file_with_other_bytes_is_read_or_refused(tmp_path, data):
    root = tmp_path / str(len(list(tmp_path.iterdir())))
    texts(root)
    content = bytearray((root / "ag_news" / "train-0.parquet").read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    some = data.draw(st.binary(min_size=1, max_size=16))
    content[place : place + len(some)] = some
    raw(root, bytes(content))
    try:
        found = public_texts("ag_news", "train", root=root)
    except DatasetRefused as refused:
        said = str(refused)
        assert "\n" not in said
        return
    assert np.isin(found.labels, range(4)).all()


@pytest.mark.parametrize("climb", ["../../escaped", "{outside}/escaped", "link"])
@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_archives_that_a_download_may_be_unpack_into_their_folder_alone(kind, climb, tmp_path):
    """Nothing here unpacks archives but `datasets`, in `featurelab data fetch`."""
    from datasets.utils.extract import ExtractManager

    outside, archive = tmp_path / "outside", tmp_path / f"a.{kind}"
    outside.mkdir()
    name = climb.format(outside=outside)
    if kind == "zip":
        with zipfile.ZipFile(archive, "w") as packed:
            packed.writestr(name, b"x")
    else:
        with tarfile.open(archive, "w") as packed:
            member = tarfile.TarInfo(name)
            if climb == "link":
                member.type, member.linkname = tarfile.SYMTYPE, str(outside)
                packed.addfile(member)
                member = tarfile.TarInfo("link/escaped")
            packed.addfile(member)
    ExtractManager(cache_dir=str(tmp_path / "cache")).extract(str(archive))
    assert list(outside.iterdir()) == []
    found = [path for path in tmp_path.rglob("*escaped*") if not path.is_relative_to(tmp_path / "cache" / "extracted")]
    assert found == []
