"""The public datasets of texts: sentences and reviews by class, news, long tasks (LongBench), essays."""

from types import MappingProxyType

from .catalogue import DatasetSource

GLUE = "https://gluebenchmark.com"


def _glue(
    name: str, rows: tuple[int, int, int], texts: tuple[str, ...], names: tuple[str, str], needs: str
) -> DatasetSource:
    """A task of GLUE, tested on its validation split: labels of its test split are not public (-1)."""
    splits = MappingProxyType(dict(zip(("train", "validation", "test"), rows, strict=True)))
    return DatasetSource(
        name=name,
        repo_id="nyu-mll/glue",
        config=name,
        splits=splits,
        label="label",
        classes=2,
        needs=needs,
        url=GLUE,
        texts=texts,
        test="validation",
        names=names,
    )


def _longbench(task: str, rows: int = 200) -> DatasetSource:
    """A task of LongBench, from a copy in parquet: `datasets` does not run the authors' script."""
    return DatasetSource(
        name=f"longbench_{task}",
        repo_id="Xnhyacinth/LongBench",
        config=task,
        splits=MappingProxyType({"test": rows}),
        label="",
        classes=0,
        needs="a few MB of downloads; licences of its sources",
        texts=LONG,
        url="https://github.com/THUDM/LongBench",
    )


LONG = ("context", "input", "answers", "all_classes")
TEXTS = {
    source.name: source
    for source in (
        DatasetSource(
            name="ag_news",
            repo_id="fancyzhx/ag_news",
            config=None,
            splits=MappingProxyType({"train": 120_000, "test": 7_600}),
            label="label",
            classes=4,
            needs="20 MB of downloads; non-commercial use only",
            url="http://groups.di.unipi.it/~gulli/AG_corpus_of_news_articles.html",
            texts=("text",),
            names=("World", "Sports", "Business", "Sci/Tech"),
        ),
        _glue("cola", (8_551, 1_043, 1_063), ("sentence",), ("unacceptable", "acceptable"), "0.4 MB of downloads"),
        DatasetSource(
            name="imdb",
            repo_id="stanfordnlp/imdb",
            config=None,
            splits=MappingProxyType({"train": 25_000, "test": 25_000, "unsupervised": 50_000}),
            label="label",
            classes=2,
            needs="80 MB of downloads; licence not stated",
            url="https://ai.stanford.edu/~amaas/data/sentiment/",
            texts=("text",),
            names=("neg", "pos"),
        ),
        _glue(
            "mrpc",
            (3_668, 408, 1_725),
            ("sentence1", "sentence2"),
            ("not_equivalent", "equivalent"),
            "1 MB of downloads",
        ),
        _glue(
            "qnli",
            (104_743, 5_463, 5_463),
            ("question", "sentence"),
            ("entailment", "not_entailment"),
            "20 MB of downloads",
        ),
        _glue(
            "qqp",
            (363_846, 40_430, 390_965),
            ("question1", "question2"),
            ("not_duplicate", "duplicate"),
            "70 MB of downloads; non-commercial use only",
        ),
        _glue(
            "rte",
            (2_490, 277, 3_000),
            ("sentence1", "sentence2"),
            ("entailment", "not_entailment"),
            "1 MB of downloads",
        ),
        _longbench("2wikimqa"),
        _longbench("gov_report"),
        _longbench("hotpotqa"),
        _longbench("multi_news"),
        _longbench("multifieldqa_en", 150),
        _longbench("musique"),
        _longbench("narrativeqa"),
        _longbench("passage_count"),
        _longbench("passage_retrieval_en"),
        _longbench("qasper"),
        _longbench("qmsum"),
        _longbench("samsum"),
        _longbench("trec"),
        _longbench("triviaqa"),
        DatasetSource(
            name="long_texts",
            repo_id=None,
            config=None,
            splits=MappingProxyType({"gutenberg": 0}),
            label="",
            classes=0,
            needs="novels in the public domain, as *.txt or with a column `text`, for instance from gutenberg.org",
            url="https://www.gutenberg.org/policy/license.html",
            texts=("text",),
            test="gutenberg",
        ),
        DatasetSource(
            name="paul_graham_essays",
            repo_id="sgoel9/paul_graham_essays",
            config=None,
            splits=MappingProxyType({"train": 0}),
            label="",
            classes=0,
            needs="3 MB of downloads; licence MIT as its card says, essays by P. Graham",
            url="https://huggingface.co/datasets/sgoel9/paul_graham_essays",
            texts=("text",),
            test="train",
        ),
        DatasetSource(
            name="sst2",
            repo_id="stanfordnlp/sst2",
            config=None,
            splits=MappingProxyType({"train": 67_349, "validation": 872, "test": 1_821}),
            label="label",
            classes=2,
            needs="5 MB of downloads; licence not stated",
            url="https://nlp.stanford.edu/sentiment",
            texts=("sentence",),
            test="validation",
            names=("negative", "positive"),
        ),
        DatasetSource(
            name="subj",
            repo_id="SetFit/subj",
            config=None,
            splits=MappingProxyType({"train": 8_000, "test": 2_000}),
            label="label",
            classes=2,
            needs="1 MB of downloads; licence not stated",
            url="https://www.cs.cornell.edu/people/pabo/movie-review-data",
            texts=("text",),
            names=("objective", "subjective"),
        ),
        _glue(
            "wnli", (635, 71, 146), ("sentence1", "sentence2"), ("not_entailment", "entailment"), "0.1 MB of downloads"
        ),
    )
}
