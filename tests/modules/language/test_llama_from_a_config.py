"""A small Llama drawn from a seed: its parts, its draws, and the network that Lightning trains."""

import pytest
import torch

pytest.importorskip("transformers")

from featurelab.modules import language


def drawn(**changes):
    options = {"width": 32, "hidden": 48, "layers": 2, "heads": 4, "kv_heads": 2, "seed": 3} | changes
    return language.untrained_llama(30, **options)


def test_weights_are_those_of_the_seed_whatever_torch_drew_before():
    torch.manual_seed(0)
    one = drawn()
    torch.manual_seed(1)
    two, other = drawn(), drawn(seed=4)
    for (name, a), b, c in zip(one.named_parameters(), two.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b), name
        assert torch.equal(a, c) == (a.ndim == 1)
        if a.ndim == 1:
            assert (a == 1).all()
        elif "embed" in name:
            assert a.std().item() == pytest.approx(0.5, rel=0.1)
        else:
            assert a.abs().max().item() <= a.shape[1] ** -0.5
            assert a.std().item() == pytest.approx((a.shape[1] * 3) ** -0.5, rel=0.1)
    more = dict(drawn(layers=3).named_parameters())  # another depth leaves a layer's draws alone
    assert all(torch.equal(weight, more[name]) for name, weight in one.named_parameters())


def test_shape_is_that_of_a_llama_without_biases():
    model = drawn()
    layer = 32 * (32 + 16 + 16 + 32) + 3 * 32 * 48 + 2 * 32
    assert sum(weight.numel() for weight in model.parameters()) == 2 * layer + 2 * 30 * 32 + 32
    assert not any(name.endswith("bias") for name, _ in model.named_parameters())
    assert model.get_input_embeddings().weight is not model.get_output_embeddings().weight
    assert model.generation_config.eos_token_id is None
    ids = torch.randint(0, 30, (2, 7), dtype=torch.int16)
    torch.testing.assert_close(language.LogitsOf(model)(ids), model(ids.long()).logits)
    assert drawn(dtype="float64")(ids.long()).logits.dtype == torch.float64


@pytest.mark.parametrize("changes", [{"heads": 5}, {"heads": 4, "kv_heads": 3}])
def test_heads_that_do_not_divide_are_refused(changes):
    with pytest.raises(ValueError, match="heads must divide"):
        drawn(**changes)


def test_without_transformers_one_line_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr("featurelab.modules.language.hub_files.find_spec", lambda name: None)
    with pytest.raises(language.ModelMissing, match=r"pip install 'feature-learning-lab\[lm\]'"):
        drawn()
