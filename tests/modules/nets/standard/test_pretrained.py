"""Published weights, from a file of the published form."""

import json

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from featurelab.modules.nets.standard.pretrained import WeightsMissing, pretrained_resnet50, read_safetensors


def published_shapes():
    """Names and shapes of torchvision's ResNet-50, written down from its definition."""
    shapes = {"conv1.weight": (64, 3, 7, 7), "fc.weight": (1000, 2048), "fc.bias": (1000,)}

    def norm(name, width):
        shapes.update({f"{name}.{part}": (width,) for part in ("weight", "bias", "running_mean", "running_var")})

    norm("bn1", 64)
    before = 64
    for stage, (depth, width) in enumerate(zip((3, 4, 6, 3), (64, 128, 256, 512), strict=True), start=1):
        for block in range(depth):
            name = f"layer{stage}.{block}"
            sizes = [(width, before, 1, 1), (width, width, 3, 3), (4 * width, width, 1, 1)]
            for index, size in enumerate(sizes, start=1):
                shapes[f"{name}.conv{index}.weight"] = size
                norm(f"{name}.bn{index}", size[0])
            if block == 0:
                shapes[f"{name}.downsample.0.weight"] = (4 * width, before, 1, 1)
                norm(f"{name}.downsample.1", 4 * width)
            before = 4 * width
    return shapes


def write_safetensors(path, tensors):
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, value in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(value.shape), "data_offsets": [offset, offset + 4 * value.size]}
        offset += 4 * value.size
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for value in tensors.values():
            file.write(value.astype("<f4").tobytes())


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    rng = np.random.default_rng(0)
    tensors = {name: rng.random(shape, dtype=np.float32) * 0.05 for name, shape in published_shapes().items()}
    path = tmp_path_factory.mktemp("weights") / "model.safetensors"
    write_safetensors(path, tensors)
    return path, {name: torch.from_numpy(value) for name, value in tensors.items()}


def test_published_weights_compute_the_published_network(weights):
    path, w = weights

    def step(h, conv, bn, stride=1):
        kernel = w[f"{conv}.weight"]
        h = F.conv2d(h, kernel, stride=stride, padding=kernel.shape[-1] // 2)
        return F.batch_norm(h, w[f"{bn}.running_mean"], w[f"{bn}.running_var"], w[f"{bn}.weight"], w[f"{bn}.bias"])

    x = torch.rand(1, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    h = F.max_pool2d(step(x, "conv1", "bn1", 2).relu(), 3, 2, 1)
    for stage, depth in enumerate((3, 4, 6, 3), start=1):
        for block in range(depth):
            name, stride = f"layer{stage}.{block}", 2 if stage > 1 and block == 0 else 1
            new = step(h, f"{name}.conv1", f"{name}.bn1").relu()
            new = step(new, f"{name}.conv2", f"{name}.bn2", stride).relu()
            new = step(new, f"{name}.conv3", f"{name}.bn3")
            short = h if block else step(h, f"{name}.downsample.0", f"{name}.downsample.1", stride)
            h = (short + new).relu()
    features = h.mean((2, 3))
    net = pretrained_resnet50(path=path).eval()
    with torch.no_grad():
        torch.testing.assert_close(net.features(x), features, rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(net(x), features @ w["fc.weight"].T + w["fc.bias"], rtol=1e-3, atol=1e-4)
    assert sum(p.numel() for p in net.parameters()) == 25_557_032


def test_a_new_head_is_drawn_from_the_seed(weights):
    path, w = weights
    net, other = (pretrained_resnet50(98, path=path, seed=seed) for seed in (0, 1))
    assert net.head.weight.shape == (98, 2048)
    assert not torch.equal(net.head.weight, other.head.weight)
    assert torch.equal(net.trunk[0][0].weight, w["conv1.weight"])


def test_wrong_files_are_refused(tmp_path, weights):
    _, w = weights
    wrong = {name: value.numpy() for name, value in w.items() if not name.startswith("layer4")}
    write_safetensors(tmp_path / "short.safetensors", wrong)
    assert set(read_safetensors(tmp_path / "short.safetensors")) == set(wrong)
    with pytest.raises(ValueError, match=r"does not hold the weights of a ResNet-50: layer4.0.bn1.bias"):
        pretrained_resnet50(path=tmp_path / "short.safetensors")


def test_missing_weights_say_how_to_get_them(monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(WeightsMissing, match=r"run `hf download timm/resnet50\.tv_in1k model\.safetensors`"):
        pretrained_resnet50()
