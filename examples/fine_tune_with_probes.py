"""Fine-tune a tiny Llama, BERT and ViT of `transformers` with every probe, check K by a slow loop, and time each probe.

    python examples/fine_tune_with_probes.py

The networks have random weights, so nothing is downloaded. Needs `transformers`.
"""

import time
import warnings

import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    LlamaConfig,
    LlamaForCausalLM,
    ViTConfig,
    ViTForImageClassification,
)

from featurelab import measures, probes

STEPS, SAMPLES, TOKENS, WORDS = 4, 32, 12, 100
CHECKED = 2  # samples in the slow loop
SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
QUIET = dict.fromkeys(["logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"], False)


class FineTuned(pl.LightningModule):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def training_step(self, batch, batch_idx):
        return self.model(**batch).loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def network(name):
    torch.manual_seed(0)
    if name == "Llama":
        return LlamaForCausalLM(LlamaConfig(vocab_size=WORDS, max_position_embeddings=64, **SIZES))
    if name == "BERT":
        return BertForSequenceClassification(BertConfig(vocab_size=WORDS, num_labels=4, **SIZES))
    return ViTForImageClassification(ViTConfig(image_size=16, patch_size=4, num_channels=1, num_labels=4, **SIZES))


def batch(name):
    draw = torch.Generator().manual_seed(1)
    labels = torch.arange(SAMPLES) % 4
    if name == "ViT":
        return {"pixel_values": torch.randn(SAMPLES, 1, 16, 16, generator=draw), "labels": labels}
    ids = torch.randint(3, WORDS, (SAMPLES, TOKENS), generator=draw)
    named = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    return named | {"labels": ids if name == "Llama" else labels}


def every_probe(name):
    """Return every probe; for the Llama also those that draw 64 combinations of its 1,200 outputs."""
    every = {"every": STEPS}
    all_probes = [
        probes.AnsatzProbe(**every),
        probes.SpectrumProbe(**every),
        probes.LossProbe({"train": batch(name)}, **every),
        probes.CollapseProbe(**every),
        probes.GramProbe(**every),
        probes.DistanceProbe(torch.arange(WORDS) % 2, **every),
        probes.AttributionProbe(**every),
        probes.AlignmentProbe(**every),
        probes.CKAProbe(**every),
        probes.InstrumentsProbe(**every),
        probes.Measure(spread, **every),
    ]
    if name == "Llama":
        all_probes += [probes.AnsatzProbe(draws=64, **every), probes.SpectrumProbe(draws=64, **every)]
    return all_probes


def spread(module, inputs):
    return module.model(**inputs).logits.std()


def fit(name, *callbacks):
    pl.seed_everything(0, verbose=False)
    module, named = FineTuned(network(name)), batch(name)
    rows = [{key: value[i] for key, value in named.items()} for i in range(SAMPLES)]
    trainer = pl.Trainer(accelerator="cpu", max_steps=STEPS, callbacks=list(callbacks), **QUIET)
    begun = time.perf_counter()
    trainer.fit(module, DataLoader(rows, batch_size=SAMPLES))
    return module.model.eval(), time.perf_counter() - begun


def slow_K(model, named, layer):
    """Return (1/n) sum J^T J of d output / d pre-activation, one output of one sample at a time."""
    K = torch.zeros(len(layer.weight), len(layer.weight), dtype=torch.float64)
    for i in range(CHECKED):
        sites = []
        handle = layer.register_forward_hook(lambda _, args, h, sites=sites: sites.append(h))
        logits = model(**{key: value[i : i + 1] for key, value in named.items()}).logits
        handle.remove()
        for output in logits.flatten():
            (g,) = torch.autograd.grad(output, sites[0], retain_graph=True)
            J = (g.flatten(2).mT if g.ndim == 4 else g).reshape(-1, len(K)).double()
            K += J.T @ J
    return K / CHECKED


def main():
    for name in ("Llama", "BERT", "ViT"):
        fit(name)  # warm-up
        model, alone = fit(name)
        print(f"\n{name}: {STEPS} steps without probes {alone:.2f} s")
        for probe in every_probe(name):
            kind = type(probe).__name__ + (f"(draws={probe.draws})" if probe.draws else "")
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                watched, seconds = fit(name, probe)
            same = all(torch.equal(a, b) for a, b in zip(model.parameters(), watched.parameters(), strict=True))
            assert same, f"{kind} changed training"
            lines = [str(each.message) for each in caught if "takes about" in str(each.message)]
            shown = {key: round(value, 3) for key, value in list(probe.latest().items())[:2]}
            print(f"  {kind:30} {seconds - alone:7.2f} s  {len(probe.latest()):3} values  {shown}", *lines)
        few = {key: value[:CHECKED] for key, value in batch(name).items() if key != "labels"}
        K = measures.tangent_covariance(model, few)
        layers = [*K][1::6]
        begun = time.perf_counter()
        errors = []
        for layer in layers:
            slow = slow_K(model, few, measures.layer_names(model)[layer])
            errors.append(float((K[layer].K - slow).norm() / slow.norm()))
        taken = f"K of {len(layers)} layers by a slow loop {time.perf_counter() - begun:.1f} s"
        print(f"  {taken}, largest relative difference {max(errors):.1e}")


if __name__ == "__main__":
    main()
