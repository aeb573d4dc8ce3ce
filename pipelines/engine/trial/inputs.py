"""Digests of the files that a trial reads and that no seed makes again: language models, tokenizers, texts."""

from featurelab.modules import data, language
from featurelab.pipelines.engine.experiment.config import Config
from featurelab.pipelines.engine.experiment.experiment import Experiment

DIGITS = 32


def digests(experiment: Experiment, config: Config) -> dict[str, str]:
    """SHA-256, cut to 32 digits, of each model's weights and tokenizer and of each split of a dataset of texts.

    Pictures are not read for it: a run names the digest of those it has taken. Raises ModelMissing or DatasetMissing.
    """
    if experiment.estimate is None:
        return {}
    cost, found = experiment.estimate(config), {}
    for name in cost.models:
        for part, digest in language.model_digests(name).items():
            found[f"{part} of {name}"] = digest[:DIGITS]
    for name in cost.data:
        if data.dataset_source(name).texts:
            for split, said in data.check_dataset(name)["splits"].items():
                found[f"{name}, {split}"] = said["digest"][:DIGITS]
    return found
