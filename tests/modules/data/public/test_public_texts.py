"""Public datasets of texts: what is read of them, and what is refused."""

import numpy as np
import pytest
from publicfiles import write_public, write_texts

from featurelab.modules.data import (
    PublicImages,
    available_datasets,
    check_dataset,
    dataset_source,
    load_split,
    public_texts,
    require_dataset,
    text_rows,
)

datasets = pytest.importorskip("datasets")
TEXTS = [entry for entry in available_datasets() if entry.texts and entry.label]
PLAIN = [entry for entry in available_datasets() if entry.texts and not entry.label]


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("FEATURELAB_DATA", str(tmp_path))
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.mark.parametrize("entry", TEXTS, ids=lambda entry: entry.name)
def test_texts_and_labels_are_those_of_the_files(root, entry):
    write_public(root, entry.name, {"train": 3, entry.test: 2})
    require_dataset(entry.name)
    found = public_texts(entry.name, "train")
    assert found.labels.tolist() == [*range(entry.classes)] * 3
    assert len(found.names) == entry.classes
    second = [f"{column} train 1 of class 1" for column in entry.texts]
    assert found.texts[1] == "\n".join(second)
    assert check_dataset(entry.name)["splits"][entry.test]["rows"] == 2 * entry.classes
    assert entry.splits["train"] > 100


def test_the_digest_is_of_texts_and_labels(root):
    def digest(texts, labels):
        table = datasets.Dataset.from_dict({"sentence": texts, "label": labels})
        (root / "sst2").mkdir(exist_ok=True)
        table.to_parquet(root / "sst2" / "train-0.parquet")
        return check_dataset("sst2")["splits"]["train"]["digest"]

    first = digest(["a b", "c"], [0, 1])
    assert digest(["a b", "c"], [0, 1]) == first
    assert len({first, digest(["a b", "c"], [1, 1]), digest(["a", "b c"], [0, 1]), digest(["c", "a b"], [0, 1])}) == 4


def test_classes_of_other_names_are_refused(root):
    write_public(root, "sst2", {"train": 1}, label=datasets.ClassLabel(names=["positive", "negative"]))
    with pytest.raises(ValueError, match="class 0 is 'positive', but 'negative' is expected"):
        load_split("sst2", "train")


def test_labels_that_are_not_public_are_refused(root):
    (root / "sst2").mkdir()
    table = datasets.Dataset.from_dict({"sentence": ["a"], "label": [-1]})
    table.to_parquet(root / "sst2" / "test-0.parquet")
    with pytest.raises(ValueError, match="split 'test' of sst2 has no public labels"):
        public_texts("sst2", "test")


def test_pictures_are_no_texts_and_texts_no_pictures(root):
    with pytest.raises(ValueError, match="mnist holds pictures"):
        public_texts("mnist", "train")
    with pytest.raises(ValueError, match="sst2 holds texts"):
        PublicImages("sst2", 10, seed=0)
    assert np.all([dataset_source(entry.name) is entry for entry in TEXTS])


@pytest.mark.parametrize("entry", PLAIN, ids=lambda entry: entry.name)
def test_texts_without_classes_are_read_row_by_row(root, entry):
    write_texts(root, entry.name)
    require_dataset(entry.name)
    rows = text_rows(entry.name, entry.test)
    assert len(rows) == check_dataset(entry.name)["splits"][entry.test]["rows"] == 3
    assert set(rows[0]) == set(entry.texts)
    if "answers" in entry.texts:
        assert rows[0]["answers"] == ["yes", "no"]
        assert rows[0]["all_classes"] is None
    with pytest.raises(ValueError, match="holds texts without classes"):
        public_texts(entry.name, entry.test)
    with pytest.raises(ValueError, match="holds pictures"):
        text_rows("mnist", "train")


def test_lines_of_json_and_plain_text_will_do_for_texts_without_classes(root):
    table = datasets.Dataset.from_list([{"context": "a", "input": "b", "answers": ["c"], "all_classes": ["d"], "x": 1}])
    (root / "longbench_trec").mkdir()
    table.to_json(root / "longbench_trec" / "test.jsonl")
    assert text_rows("longbench_trec", "test") == [
        {"context": "a", "input": "b", "answers": ["c"], "all_classes": ["d"]}
    ]
    (root / "paul_graham_essays").mkdir()
    for name, text in (("one.txt", "First.\n\nStill the first."), ("two.txt", "Second.")):
        (root / "paul_graham_essays" / name).write_text(text)
    assert [row["text"] for row in text_rows("paul_graham_essays", "train")] == [
        "First.\n\nStill the first.",
        "Second.",
    ]
    first = check_dataset("paul_graham_essays")["splits"]["train"]["digest"]
    (root / "paul_graham_essays" / "two.txt").write_text("Another.")
    assert check_dataset("paul_graham_essays")["splits"]["train"]["digest"] != first
