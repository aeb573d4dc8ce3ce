"""Tiny networks of `transformers` inside a LightningModule as their users write it, and K by a slow loop."""

import pytorch_lightning as pl
import torch
import transformers  # its networks are imported where they are used: four processes collect this file
from torch import nn
from torch.utils.data import DataLoader

SIZES = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
KINDS = ("llama", "sentences", "tokens", "vit")
QUIET = dict.fromkeys(["logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"], False)


class FineTuned(pl.LightningModule):
    """No forward of its own: training calls the model with the batch."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def training_step(self, batch, _):
        return self.model(**batch).loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05)


def network(kind, **options):
    torch.manual_seed(0)
    if kind == "llama":
        return transformers.LlamaForCausalLM(
            transformers.LlamaConfig(vocab_size=20, max_position_embeddings=16, **(SIZES | options))
        )
    if kind == "vit":
        return transformers.ViTForImageClassification(
            transformers.ViTConfig(image_size=8, patch_size=4, num_channels=1, num_labels=3, **(SIZES | options))
        )
    config = transformers.BertConfig(vocab_size=20, num_labels=3, max_position_embeddings=16, **(SIZES | options))
    return (
        transformers.BertForSequenceClassification if kind == "sentences" else transformers.BertForTokenClassification
    )(config)


def batch(kind, n=6, length=5):
    """As a collator makes it: every other sample is shorter, and padding has no labels."""
    draw = torch.Generator().manual_seed(1)
    if kind == "vit":
        return {"pixel_values": torch.randn(n, 1, 8, 8, generator=draw), "labels": torch.arange(n) % 3}
    ids, mask = torch.randint(3, 20, (n, length), generator=draw), torch.ones(n, length, dtype=torch.long)
    mask[::2, -2:] = 0
    named = {"input_ids": ids, "attention_mask": mask}
    if kind == "sentences":
        return named | {"token_type_ids": torch.zeros_like(ids), "labels": torch.arange(n) % 3}
    return named | {"labels": torch.where(mask > 0, ids if kind == "llama" else ids % 3, -100)}


def loader(named, size=6, **options):
    rows = [{name: value[i] for name, value in named.items()} for i in range(len(named["labels"]))]
    return DataLoader(rows, batch_size=size, **options)


def fit(model, named, *probes, steps=2, module=FineTuned, data=None, **options):
    pl.seed_everything(0, verbose=False)
    trained = module(model)
    trainer = pl.Trainer(accelerator="cpu", max_steps=steps, callbacks=list(probes), **QUIET, **options)
    trainer.fit(trained, loader(named) if data is None else data)
    return trained


def slow_K(model, named, layer):
    """Sample by sample, output by output, one backward pass each; outputs at padding are passed over."""
    inputs = {name: value for name, value in named.items() if name != "labels"}
    n, K = len(named["labels"]), 0
    for i in range(n):
        sites = []

        def shift(_, args, h, sites=sites):
            sites.append(torch.zeros_like(h, requires_grad=True))
            return h + sites[-1]

        handle = layer.register_forward_hook(shift)
        logits = model(**{name: value[i : i + 1] for name, value in inputs.items()}).logits[0]
        handle.remove()
        if logits.ndim == 2 and "attention_mask" in inputs:
            logits = logits[inputs["attention_mask"][i] > 0]
        for output in logits.flatten():
            for g in torch.autograd.grad(output, sites, retain_graph=True):
                J = g[0].flatten(1).T if isinstance(layer, nn.Conv2d) else g.reshape(-1, g.shape[-1])
                K = K + J.T @ J
    return K / n
