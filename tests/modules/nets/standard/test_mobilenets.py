"""MobileNets of published folders: the networks of `transformers`, with normalisation folded into convolutions."""

import json

import pytest
import torch

from featurelab.modules.nets.standard.mobilenets import pretrained_mobilenet

transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module", params=["MobileNetV1", "MobileNetV2"])
def published(request, tmp_path_factory):
    """A narrow network with random weights and statistics, and the folder that it is stored in."""
    config = getattr(transformers, f"{request.param}Config")(depth_multiplier=0.25, num_labels=5)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = getattr(transformers, f"{request.param}ForImageClassification")(config).eval()
        for name, value in net.state_dict().items():
            if "normalization" in name and value.is_floating_point():
                value.uniform_(0.5, 1.5)
            elif "convolution" in name:
                value.normal_(std=1.5 * value[0].numel() ** -0.5)
    folder = tmp_path_factory.mktemp("model")
    net.save_pretrained(folder)
    return net, folder


@pytest.mark.parametrize("sides", [(64, 64), (47, 50)])
def test_published_weights_compute_the_published_network(published, sides):
    net, folder = published
    ours = pretrained_mobilenet(folder)
    x = torch.rand(2, 3, *sides, generator=torch.Generator().manual_seed(1)) * 2 - 1
    with torch.no_grad():
        expected = net(pixel_values=x, output_hidden_states=True)
        torch.testing.assert_close(ours(x), expected.logits, rtol=1e-3, atol=1e-4)
        assert ours.features(x).std() > 0.1
        kept = ours.trunk[:9](x)  # 8 blocks above the first convolution
        torch.testing.assert_close(
            kept, expected.hidden_states[15 if "V1" in type(net).__name__ else 7], rtol=1e-3, atol=1e-4
        )
        torch.testing.assert_close(ours.trunk[9:](kept), ours.features(x))
    assert not any(parameter.requires_grad for parameter in ours.parameters())


def test_a_new_head_is_trained_and_drawn_from_the_seed(published):
    _, folder = published
    net, other = (pretrained_mobilenet(folder, 7, seed=seed, dtype="float64") for seed in (0, 1))
    assert net.head.weight.shape == (7, net.features(torch.zeros(1, 3, 32, 32, dtype=torch.float64)).shape[1])
    assert not torch.equal(net.head.weight, other.head.weight)
    assert [name for name, value in net.named_parameters() if value.requires_grad] == ["head.weight", "head.bias"]


def test_other_folders_are_refused(published, tmp_path):
    _, folder = published
    with pytest.raises(ValueError, match="does not hold a MobileNet"):
        pretrained_mobilenet(tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"tf_padding": False}))
    (tmp_path / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    with pytest.raises(ValueError, match="only MobileNets with tf_padding=True"):
        pretrained_mobilenet(tmp_path)
