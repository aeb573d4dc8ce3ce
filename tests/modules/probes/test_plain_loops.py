"""Probes measure the same values bit for bit in a plain loop, in Lightning and in the Trainer of transformers."""

import copy

import pytest
import pytorch_lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader

from featurelab import probes

x = torch.randn(24, 6, generator=torch.Generator().manual_seed(0))
y = torch.arange(24) % 4
signs = (2.0 * (y % 2) - 1)[:, None]
ALL = {
    "AlignmentProbe": lambda: probes.AlignmentProbe(),
    "AnsatzProbe": lambda: probes.AnsatzProbe(),
    "AttributionProbe": lambda: probes.AttributionProbe(),
    "CKAProbe": lambda: probes.CKAProbe(),
    "CollapseProbe": lambda: probes.CollapseProbe(),
    "DistanceProbe": lambda: probes.DistanceProbe([0, 0, 1, 1]),
    "GramProbe": lambda: probes.GramProbe(),
    "InstrumentsProbe": lambda: probes.InstrumentsProbe(),
    "LossProbe": lambda: probes.LossProbe({"train": (x, y)}, loss="cross_entropy"),
    "Measure": lambda: probes.Measure(lambda module, inputs: module(inputs).std(), name="spread"),
    "RetrievalProbe": lambda: probes.RetrievalProbe((x, y)),
    "SpectrumProbe": lambda: probes.SpectrumProbe(),
    "UnseenClassProbe": lambda: probes.UnseenClassProbe((x, signs), {"unseen": (x, y)}, permutations=2, seed=0),
}
NO_PROBES = {"CannotMeasure", "EarlyGradients", "FeatureProbe", "Probe", "ReferenceProbe", "trainer_callback"}


class Net(nn.Sequential):
    """Has what the probes of single papers ask for: features, and a trunk with a feature and a head."""

    def __init__(self):
        torch.manual_seed(0)
        super().__init__(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))

    def representation(self, inputs):
        return self[1](self[0](inputs))

    def transform(self, h):
        return self[3](self[2](h))

    def head(self, F):
        return self[4](F)[:, :1]

    def features(self, inputs):
        return self.transform(self.representation(inputs))


class Lit(pl.LightningModule):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, inputs):
        return self.net(inputs)

    def training_step(self, batch, batch_idx):
        return nn.functional.cross_entropy(self(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.5)


def trainer(**options):
    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    return pl.Trainer(**quiet, accelerator="cpu", **options)


def test_every_public_probe_is_compared():
    assert set(ALL) == set(probes.__all__) - NO_PROBES


@pytest.mark.parametrize("name", ALL)
@pytest.mark.filterwarnings("ignore")
def test_a_plain_loop_measures_what_lightning_does(name):
    of_lightning, plain, net = ALL[name](), ALL[name](), Net()
    of_lightning.strict = plain.strict = True
    batches = DataLoader(list(zip(x, y, strict=True)), batch_size=24)
    trainer(max_steps=3, callbacks=[of_lightning]).fit(Lit(copy.deepcopy(net)), batches)

    recorded = []

    class Recorder:
        def log(self, values, step):
            recorded.append((step, values))

    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    for step in range(4):
        values = plain.measure(net, (x, y), step, recorder=Recorder())
        assert values == plain.latest()
        assert net.training
        assert values
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
    assert plain.history == of_lightning.history == recorded
    assert len(recorded) == 4


def test_a_measurement_leaves_a_plain_loop_as_it_was():
    net = Net()
    net(x).sum().backward()
    before, random = [parameter.grad.clone() for parameter in net.parameters()], torch.get_rng_state()
    probes.InstrumentsProbe().measure(net, x, 5)
    assert all(torch.equal(a, b.grad) for a, b in zip(before, net.parameters(), strict=True))
    assert torch.equal(random, torch.get_rng_state())


def test_without_a_batch_a_probe_says_that_it_needs_one():
    with pytest.raises(ValueError, match="AnsatzProbe needs a batch"):
        probes.AnsatzProbe().measure(Net(), step=1)
    assert probes.LossProbe((x, y), loss="cross_entropy").measure(Net())


def test_early_gradients_are_kept_in_a_plain_loop():
    net, kept = Net(), []
    with probes.EarlyGradients({"first": net[0].weight}, steps=2) as early:
        for _ in range(3):
            net.zero_grad()
            nn.functional.cross_entropy(net(x), y).backward()
            kept.append(net[0].weight.grad.clone())
    assert torch.equal(early.gradients["first"], torch.stack(kept[:2]))
    net(x).sum().backward()
    assert len(early.gradients["first"]) == 2


class Replay(torch.optim.SGD):
    """Sets the weights to given ones, one after another, in place of a step."""

    def __init__(self, module, states):
        super().__init__(module.parameters(), lr=0.0)
        self.module, self.states = module, iter(states)

    def step(self, closure=None):
        closure()
        self.module.load_state_dict(next(self.states))


@pytest.mark.filterwarnings("ignore")
def test_the_trainer_of_transformers_measures_what_lightning_does_at_the_same_weights(tmp_path):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=20, **sizes))
    start, states, batches, recorded = copy.deepcopy(model), [], [], []
    ids = torch.randint(3, 20, (8, 6))
    rows = [{"input_ids": row, "attention_mask": torch.ones_like(row), "labels": row} for row in ids]

    class States(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, **given):
            states.append(copy.deepcopy(model.state_dict()))

    class Recorder:
        def log(self, values, step):
            recorded.append(step)

    def collate(rows):
        batches.append(torch.utils.data.default_collate(rows))
        return dict(batches[-1])

    def made():
        return [probes.AnsatzProbe(every=2, strict=True), probes.CollapseProbe(on="epoch", strict=True)]

    in_trainer, in_lightning = made(), made()
    callbacks = [States(), probes.trainer_callback(*in_trainer, recorder=Recorder())]
    arguments = transformers.TrainingArguments(
        str(tmp_path),
        max_steps=3,
        per_device_train_batch_size=4,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
        disable_tqdm=True,
        learning_rate=0.01,
    )
    transformers.Trainer(model, arguments, train_dataset=rows, data_collator=collate, callbacks=callbacks).train()

    class Replayed(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = start

        def training_step(self, batch, batch_idx):
            return self.model(**batch).loss

        def configure_optimizers(self):
            return Replay(self.model, states)

    trainer(max_steps=3, callbacks=in_lightning).fit(Replayed(), DataLoader(batches[:2], batch_size=None))
    assert [probe.history for probe in in_trainer] == [probe.history for probe in in_lightning]
    assert [step for step, _ in in_trainer[0].history] == [0, 2, 3]
    assert all(values for probe in in_trainer for _, values in probe.history)
    assert sorted(recorded) == sorted(step for probe in in_trainer for step, _ in probe.history)
