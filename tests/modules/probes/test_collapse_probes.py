"""Probes of collapse, distances, alignment, similarity, Gram matrices and attribution, on a stranger's module."""

import copy
import math

import pytest
import pytorch_lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from featurelab.modules import measures
from featurelab.modules.data import Digits
from featurelab.modules.measures import class_moments, layer_inputs
from featurelab.modules.probes import (
    AlignmentProbe,
    AnsatzProbe,
    AttributionProbe,
    CKAProbe,
    CollapseProbe,
    DistanceProbe,
    FeatureProbe,
    GramProbe,
)

X, TARGETS = Digits(128, seed=0, dtype="float32").train
X = X.reshape(-1, 1, 8, 8)
Y = TARGETS.argmax(1)
COARSE = torch.arange(10) % 5  # the label of each digit


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Batches this small go faster without threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Stranger(pl.LightningModule):
    """Somebody else's: convolutions, batch norm, dropout, a nested head, layers named out of the order of the calls."""

    def __init__(self, labels=Y):
        super().__init__()
        torch.manual_seed(0)
        self.labels = labels
        self.head = nn.Linear(12, 10)
        self.stem = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
        self.body = nn.ModuleDict({"inner": nn.Sequential(nn.Linear(256, 16), nn.ReLU(inplace=True), nn.Dropout(0.3))})
        self.last = nn.Linear(16, 12, bias=False)

    def forward(self, x):
        h = self.body["inner"](self.stem(x).flatten(1))
        return self.head(torch.relu(self.last(h)))

    def training_step(self, batch, _):
        x, y = batch
        return nn.functional.cross_entropy(self(x + 0.01 * torch.randn_like(x)), y)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2)

    def train_dataloader(self):
        return DataLoader(TensorDataset(X, self.labels), batch_size=32, shuffle=True)


def fit(*probes, module=None, steps=6, path=None, **options):
    pl.seed_everything(1, verbose=False)
    module = Stranger() if module is None else module
    flags = dict.fromkeys(["logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"], False)
    trainer = pl.Trainer(accelerator="cpu", devices=1, callbacks=list(probes), max_steps=steps, **flags, **options)
    trainer.fit(module, ckpt_path=path, weights_only=False)
    return module, trainer


def features(module, layer="head"):
    module.eval()
    return layer_inputs(module, X, layers=[layer])[layer]


def stream(size, labels=Y):
    return DataLoader(TensorDataset(X, labels), batch_size=size)


def unprefixed(probe):
    return {name.removeprefix(probe.prefix): value for name, value in probe.latest().items()}


def everything():
    return [
        CollapseProbe(every=2, data=DataLoader(TensorDataset(X, Y), batch_size=50, shuffle=True)),
        DistanceProbe(COARSE, every=3),
        AlignmentProbe(every=2),
        CKAProbe(every=2, layers=["stem.0", "body.inner.0", "head"], prefix="cka/"),
        GramProbe(every=4),
        AttributionProbe(every=5),
        AnsatzProbe(every=3, quantities=["nfa"]),
    ]


def test_training_with_the_probes_gives_the_same_bits_as_without():
    probes = everything()
    (plain, _), (probed, _) = fit(), fit(*probes)
    for (name, a), (_, b) in zip(plain.state_dict().items(), probed.state_dict().items(), strict=True):
        assert torch.equal(a, b), name
    assert [len(probe.history) for probe in probes] == [4, 3, 4, 4, 3, 3, 3]
    assert all(probe.latest() for probe in probes)


def test_collapse_probe_measures_the_last_linear_layer_that_is_called():
    probe = CollapseProbe(every=3, inputs=(X, Y))
    module, _ = fit(probe)
    H, m = features(module), class_moments(features(module), Y)
    expected = {
        "nc1/head": measures.nc1(m).item(),
        "nc1_pinv/head": measures.nc1_pinv(H, Y).item(),
        "nc2/head": measures.nc2(m).item(),
        "nc2_cosines/head": measures.nc2_cosines(m).item(),
        "nc3/head": measures.nc3(module.head.weight, m).item(),
        "nc4/head": measures.nc4(module.head(H), H, m).item(),
    }
    assert probe.latest() == pytest.approx(expected, rel=1e-9)
    assert [step for step, _ in probe.history] == [0, 3, 6]


def test_streamed_data_gives_what_the_whole_batch_gives():
    layers = ["stem.0", "body.inner.0", "last", "head"]
    whole = CollapseProbe(layers=layers, inputs=(X, Y), every=9)
    probes = [CollapseProbe(layers=layers, data=stream(size), every=9, prefix=f"{size}/") for size in (128, 50, 11)]
    shuffled = CollapseProbe(data=DataLoader(TensorDataset(X, TARGETS), batch_size=30, shuffle=True), every=9)
    fit(whole, *probes, shuffled)
    assert len(whole.latest()) == 4 * 4 + 2
    for probe in probes:
        assert unprefixed(probe) == pytest.approx(whole.latest(), rel=1e-4)
    here = {name: value for name, value in whole.latest().items() if name.endswith("/head")}
    assert shuffled.latest() == pytest.approx(here, rel=1e-4)


def test_streaming_holds_one_batch_at_a_time():
    held = []

    class Counting:
        def __iter__(self):
            for start in range(0, 128, 8):
                held.append(start)
                yield X[start : start + 8], Y[start : start + 8]

    seen = []

    class Look(FeatureProbe):
        def values(self, module, inputs, targets):
            held.clear()  # the first batch was looked at for its shapes
            seen.extend((len(held), len(found.labels)) for found in self.passes([module], ["head"], inputs, targets))
            return {}

    fit(Look(data=Counting(), every=100), steps=1)
    assert seen[:16] == [(i + 1, 8) for i in range(16)]


def test_labels_of_ones_own_replace_the_targets():
    coarse = COARSE[Y]
    own = CollapseProbe(every=3, inputs=(X, coarse), labels=Y, prefix="original/")
    streamed = CollapseProbe(every=3, data=stream(30, coarse), labels=Y, prefix="streamed/")
    trained = CollapseProbe(every=3, inputs=(X, coarse), quantities=["nc1", "nc3"])
    module, _ = fit(own, streamed, trained, module=Stranger(coarse))
    fine, grouped = (class_moments(features(module), y) for y in (Y, coarse))
    assert own.latest()["original/nc1/head"] == pytest.approx(measures.nc1(fine).item())
    assert streamed.latest()["streamed/nc1/head"] == pytest.approx(measures.nc1(fine).item())
    assert "original/nc3/head" not in own.latest()  # the outputs are not about these labels
    assert "original/nc4/head" not in own.latest()
    assert trained.latest() == {
        "nc1/head": pytest.approx(measures.nc1(grouped).item()),
        "nc3/head": pytest.approx(measures.nc3(module.head.weight[:5], grouped).item()),
    }


def test_classes_that_a_batch_lacks_are_passed_over():
    some = (Y == 2) | (Y == 7) | (Y == 9)
    probes = [
        CollapseProbe(inputs=(X[some], Y[some]), every=9),
        AlignmentProbe(inputs=(X[some], Y[some]), every=9),
        DistanceProbe(COARSE, inputs=(X[some], Y[some]), every=9),
        AttributionProbe(inputs=(X[some], Y[some]), every=9),
    ]
    alone = CollapseProbe(inputs=(X[Y == 2], Y[Y == 2]), every=9, prefix="alone/")
    module, _ = fit(*probes, alone)
    H = features(module)[some]
    y = torch.tensor([-1, -1, 0, -1, -1, -1, -1, 1, -1, 2])[Y[some]]
    m = class_moments(H, y)
    found = probes[0].latest()
    assert found["nc1/head"] == pytest.approx(measures.nc1(m).item())
    assert found["nc3/head"] == pytest.approx(measures.nc3(module.head.weight[[2, 7, 9]], m).item())
    assert found["nc4/head"] == pytest.approx(measures.nc4(module.head(H)[:, [2, 7, 9]], H, m).item())
    assert {name for name in probes[1].latest() if name.startswith("alignment")} == {
        f"alignment/{c}" for c in (2, 7, 9)
    }
    D = probes[2].matrices[6]
    assert D.isnan().sum() == 100 - 9
    torch.testing.assert_close(D[[2, 7, 9]][:, [2, 7, 9]], measures.class_distances(m), rtol=1e-6, atol=1e-9)
    assert "nc1_drop/last" in probes[3].latest()
    assert alone.latest() == {}


def test_distance_probe_logs_blocks_and_keeps_the_matrices():
    coarse = COARSE[Y]
    probe = DistanceProbe(COARSE.tolist(), every=2, inputs=(X, coarse), labels=Y)
    module, _ = fit(probe, module=Stranger(coarse))
    D = measures.class_distances(class_moments(features(module), Y))
    expected = {f"class_distance/{block}": value for block, value in measures.distance_blocks(D, COARSE).items()}
    assert probe.latest() == pytest.approx(expected | {"msdr/head": measures.msdr(D, COARSE)}, rel=1e-9)
    assert list(probe.matrices) == [0, 2, 4, 6]
    torch.testing.assert_close(probe.matrices[6], D, rtol=1e-9, atol=0)


def test_alignment_probe_compares_with_the_network_at_the_start():
    probe = AlignmentProbe(every=3, inputs=(X, Y))
    initial = copy.deepcopy(Stranger())
    module, _ = fit(probe)
    F, F0 = features(module), features(initial)
    expected = {f"alignment/{c}": measures.alignment(F[c == Y]).item() for c in range(10)}
    expected |= {f"elasticity/{c}": measures.elasticity(F[c == Y], F0[c == Y]).item() for c in range(10)}
    expected |= {f"recall_at_1/{c}": measures.recall_by_class(F, Y)[c].item() for c in range(10)}
    expected["recall_at_1/all"] = measures.recall_at_k(F, Y).item()
    assert probe.latest() == pytest.approx(expected, rel=1e-9)
    assert all(probe.history[0][1][f"elasticity/{c}"] == 0 for c in range(10))
    assert probe.latest()["elasticity/3"] > 0


def test_alignment_probe_takes_a_reference_of_ones_own():
    other = Stranger().eval()
    nn.init.zeros_(other.last.weight)
    probe = AlignmentProbe(every=6, inputs=(X, Y), reference=other, similarity="inner")
    module, _ = fit(probe)
    F = features(module)
    assert probe.latest()["elasticity/4"] == pytest.approx(F[Y == 4].square().sum(1).mean().item())
    assert probe.latest()["recall_at_1/all"] == pytest.approx(measures.recall_at_k(F, Y, similarity="inner").item())


def test_cka_probe_is_one_at_the_start_and_needs_no_labels():
    layers = ["body.inner.0", "head"]
    probes = [
        CKAProbe(every=3, layers=layers, inputs=X),
        CKAProbe(every=3, layers=layers, data=stream(30), prefix="streamed/"),
    ]
    initial = copy.deepcopy(Stranger())
    module, _ = fit(*probes)
    expected = {
        f"cka/{name}": measures.linear_cka(features(module, name), features(initial, name)).item() for name in layers
    }
    assert probes[0].latest() == pytest.approx(expected, rel=1e-9)
    assert unprefixed(probes[1]) == pytest.approx(expected, rel=1e-5)
    assert all(value == pytest.approx(1) for value in probes[0].history[0][1].values())
    assert 0 < probes[0].latest()["cka/head"] < 0.999


def test_gram_probe_reports_the_summary():
    probe = GramProbe(every=3, layers=["last", "head"], data=stream(50))
    module, _ = fit(probe)
    expected = {}
    for layer in ("last", "head"):
        summary = measures.gram_summary(features(module, layer), Y)
        expected |= {
            f"gram_within/{layer}": summary["within"],
            f"gram_between/{layer}": summary["between"],
            f"gram_error/{layer}": summary["relative_error"],
        }
    assert probe.latest() == pytest.approx(expected, rel=1e-5)


def test_attribution_probe_takes_the_linear_layers_before_the_last_apart():
    probes = [
        AttributionProbe(every=3, data=stream(50)),
        AttributionProbe(every=3, inputs=(X, Y), layers=["last"], activation=torch.tanh, prefix="tanh/"),
    ]
    module, _ = fit(*probes)
    expected = {}
    for name, layer in (("body.inner.0", module.body["inner"][0]), ("last", module.last)):
        scores = measures.svd_attribution(layer.weight.detach(), features(module, name), Y, bias=layer.bias)
        drops = measures.attribution_drops(scores)
        expected |= {
            f"nc1_drop_right/{name}": drops["right"],
            f"nc1_drop_activation/{name}": drops["activation"],
            f"nc1_drop/{name}": drops["total"],
        }
    assert probes[0].latest() == pytest.approx(expected, rel=1e-4, abs=1e-6)
    scores = measures.svd_attribution(module.last.weight.detach(), features(module, "last"), Y, torch.tanh)
    assert probes[1].latest()["tanh/nc1_drop/last"] == pytest.approx(math.log(scores["input"] / scores["output"]))


def test_a_resumed_fit_keeps_reference_history_and_matrices(tmp_path):
    def probes():
        return [
            AlignmentProbe(every=2, inputs=(X, Y)),
            DistanceProbe(COARSE, every=2, inputs=(X, Y)),
            CKAProbe(every=2, inputs=X),
        ]

    half = probes()
    _, trainer = fit(*half, steps=4)
    trainer.save_checkpoint(tmp_path / "half.ckpt")
    resumed = probes()
    module, _ = fit(*resumed, steps=8, path=tmp_path / "half.ckpt")
    for before, after in zip(half, resumed, strict=True):
        assert after.history[:3] == before.history
        assert [step for step, _ in after.history] == [0, 2, 4, 6, 8]
    assert list(resumed[1].matrices) == [0, 2, 4, 6, 8]
    F, F0 = features(module), features(Stranger())
    assert resumed[0].latest()["elasticity/0"] == pytest.approx(measures.elasticity(F[Y == 0], F0[Y == 0]).item())


class Bare(Stranger):
    def forward(self, x):
        return self.stem(x).mean((2, 3))

    def training_step(self, batch, _):
        return self(batch[0]).square().mean()


@pytest.mark.parametrize(
    ("probe", "module", "complaint"),
    [
        (CollapseProbe(inputs=X), Stranger, "CollapseProbe needs labels"),
        (CollapseProbe(inputs=(X, Y[1:])), Stranger, "got 127 labels for 128 samples"),
        (CollapseProbe(data=stream(32), labels=Y[:100]), Stranger, "got 4 labels for 32 samples"),
        (CollapseProbe(layers=["bdy"]), Stranger, "no linear or ungrouped convolutional layer 'bdy'"),
        (CollapseProbe(), Bare, "Bare calls no linear layer"),
        (AttributionProbe(layers=["stem.0"]), Stranger, "'stem.0' is a Conv2d"),
        (DistanceProbe([0, 1]), Stranger, "outside the 2 classes"),
        (GramProbe(inputs=X), Stranger, "GramProbe needs labels"),
    ],
)
def test_what_cannot_be_measured_is_refused_in_one_line(probe, module, complaint):
    probe.strict = True
    with pytest.raises(ValueError, match=complaint):
        fit(probe, module=module(), steps=1)


def test_unknown_quantities_and_a_reference_before_the_fit_are_refused():
    with pytest.raises(ValueError, match="did you mean 'nc1'"):
        CollapseProbe(quantities=["nc_1"])
    with pytest.raises(RuntimeError, match="no reference before the fit"):
        _ = CKAProbe().reference
