"""Published encoders from disk: what they see of a picture or a text, and what is refused."""

import json

import numpy as np
import pytest
import torch

from featurelab.modules.language import (
    ModelMissing,
    find_model,
    load_picture_encoder,
    load_text_encoder,
    model_digests,
)

transformers = pytest.importorskip("transformers")
Image = pytest.importorskip("PIL.Image")

from tinyencoders import EDGE, save_bert, save_clip, save_moco, save_swin, save_vit  # noqa: E402


@pytest.fixture
def pictures():
    rng = np.random.default_rng(0)
    sides = ((20, 33), (40, 25), (16, 16))
    return [Image.fromarray(rng.integers(0, 256, (*side, 3), dtype=np.uint8)) for side in sides]


@pytest.mark.parametrize("projected", [True, False])
def test_features_of_clip_are_those_of_its_own_processor_and_image_tower(tmp_path, pictures, projected):
    save_clip(tmp_path)
    encoder = load_picture_encoder(str(tmp_path), projected=projected)
    seen = encoder.prepared(pictures)
    assert (seen.dtype, tuple(seen.shape)) == (torch.uint8, (3, 3, EDGE, EDGE))
    whole = transformers.CLIPModel.from_pretrained(tmp_path).eval()
    given = transformers.AutoImageProcessor.from_pretrained(tmp_path, backend="pil")(pictures, return_tensors="pt")
    with torch.no_grad():
        token = whole.vision_model(**given).pooler_output
        expected = whole.visual_projection(token) if projected else token
        torch.testing.assert_close(encoder(seen), expected, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(encoder(seen.float() / 255), expected, rtol=1e-4, atol=1e-5)
    assert encoder.width == expected.shape[1] == (12 if projected else 16)
    assert not any(p.requires_grad for p in encoder.parameters())


def test_a_vision_transformer_gives_its_class_token(tmp_path, pictures):
    net = save_vit(tmp_path).eval()
    encoder = load_picture_encoder(str(tmp_path))
    given = transformers.AutoImageProcessor.from_pretrained(tmp_path, backend="pil")(pictures, return_tensors="pt")
    with torch.no_grad():
        expected = net(**given).last_hidden_state[:, 0]
        torch.testing.assert_close(encoder(encoder.prepared(pictures)), expected, rtol=1e-4, atol=1e-5)


def test_a_swin_transformer_gives_the_mean_over_places(tmp_path, pictures):
    net = save_swin(tmp_path).eval()
    encoder = load_picture_encoder(str(tmp_path))
    given = transformers.AutoImageProcessor.from_pretrained(tmp_path, backend="pil")(pictures, return_tensors="pt")
    with torch.no_grad():
        expected = net(**given).last_hidden_state.mean(1)
        torch.testing.assert_close(encoder(encoder.prepared(pictures)), expected, rtol=1e-4, atol=1e-5)
    assert encoder.width == expected.shape[1] == 32


def by_hand(weights, x, heads, layers):
    """The transformer of MoCo v3 under timm's names, picture by picture and head by head."""

    def norm(h, name):
        return torch.nn.functional.layer_norm(h, h.shape[-1:], weights[f"{name}.weight"], weights[f"{name}.bias"], 1e-6)

    def linear(h, name):
        return h @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    found = []
    kernel = weights["patch_embed.proj.weight"]
    for picture in x:
        side = kernel.shape[-1]
        patches = [picture[:, i : i + side, j : j + side] for i in range(0, EDGE, side) for j in range(0, EDGE, side)]
        tokens = [(kernel * patch).sum((1, 2, 3)) + weights["patch_embed.proj.bias"] for patch in patches]
        h = torch.stack([weights["cls_token"][0, 0], *tokens]) + weights["pos_embed"][0]
        for layer in range(layers):
            name = f"blocks.{layer}"
            q, k, v = linear(norm(h, f"{name}.norm1"), f"{name}.attn.qkv").chunk(3, dim=1)
            parts = [
                torch.softmax(a @ b.T / a.shape[1] ** 0.5, 1) @ c
                for a, b, c in zip(q.chunk(heads, 1), k.chunk(heads, 1), v.chunk(heads, 1), strict=True)
            ]
            h = h + linear(torch.cat(parts, 1), f"{name}.attn.proj")
            inner = torch.nn.functional.gelu(linear(norm(h, f"{name}.norm2"), f"{name}.mlp.fc1"))
            h = h + linear(inner, f"{name}.mlp.fc2")
        found.append(norm(h, "norm")[0])
    return torch.stack(found)


def test_moco_v3_under_the_names_of_timm_is_read_without_its_head(tmp_path, pictures):
    weights = save_moco(tmp_path)
    encoder = load_picture_encoder(str(tmp_path))
    seen = encoder.prepared(pictures)
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    standard = (seen.float() / 255 - mean[:, None, None]) / std[:, None, None]
    torch.testing.assert_close(encoder(seen), by_hand(weights, standard, 2, 2), rtol=1e-4, atol=1e-5)
    assert set(model_digests(str(tmp_path))) == {"weights"}
    square = Image.fromarray(np.arange(18 * 18, dtype=np.uint8).reshape(18, 18))
    middle = np.array(square)[1:17, 1:17]  # 18 is 8/7 of 16, rounded: nothing is resized
    assert (encoder.prepared([square])[0].numpy() == middle).all()


def test_files_of_something_else_are_refused(tmp_path):
    save_vit(tmp_path)
    settings = json.loads((tmp_path / "config.json").read_text())
    del settings["model_type"]
    (tmp_path / "config.json").write_text(json.dumps(settings))
    with pytest.raises(ValueError, match="does not hold a vision transformer with timm's names"):
        load_picture_encoder(str(tmp_path))
    save_clip(tmp_path / "clip")
    del_part = tmp_path / "clip" / "model.safetensors"
    from safetensors.torch import load_file, save_file

    kept = {name: value for name, value in load_file(del_part).items() if "visual_projection" not in name}
    save_file(kept, del_part, metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"it lacks visual_projection.weight and 0 other weights"):
        load_picture_encoder(str(tmp_path / "clip"))
    assert load_picture_encoder(str(tmp_path / "clip"), projected=False).width == 16


def test_encoders_of_pictures_are_found_without_a_tokenizer(tmp_path, monkeypatch):
    save_clip(tmp_path / "models" / "someone" / "clip")
    monkeypatch.setenv("FEATURELAB_DATA", str(tmp_path))
    assert find_model("someone/clip") == tmp_path / "models" / "someone" / "clip"
    digests = model_digests("someone/clip")
    assert set(digests) == {"weights", "pictures"}
    file = tmp_path / "models" / "someone" / "clip" / "preprocessor_config.json"
    file.write_text(file.read_text().replace("0.48", "0.49"))
    changed = model_digests("someone/clip")
    assert [changed[part] == digests[part] for part in ("weights", "pictures")] == [True, False]
    (tmp_path / "models" / "someone" / "clip").rename(tmp_path / "models" / "clip")
    assert find_model("someone/clip") == tmp_path / "models" / "clip", "without its owner"
    (tmp_path / "models" / "clip" / "preprocessor_config.json").unlink()
    with pytest.raises(ModelMissing, match=r"lacks its tokenizer, or of pictures preprocessor_config.json in .*: run"):
        find_model("someone/clip")


@pytest.mark.parametrize("pickled", [False, True])
def test_features_of_texts_are_those_of_the_first_token_whatever_stands_beside_them(tmp_path, pickled):
    net = save_bert(tmp_path, pickled=pickled)
    encoder = load_text_encoder(str(tmp_path))
    texts = ["good film", "a very very dull film of class 7", "not"]
    ids = encoder.tokens(texts)
    assert ids[0, -1] == encoder.padding
    with torch.no_grad():
        together = encoder(torch.nn.functional.pad(ids, (0, 5), value=encoder.padding))
        for row, text in zip(together, texts, strict=True):
            alone = encoder.tokens([text])
            assert (alone != encoder.padding).all()
            torch.testing.assert_close(row, net(input_ids=alone).last_hidden_state[0, 0], rtol=1e-4, atol=1e-5)
    assert encoder.tokens(["film " * 100]).shape == (1, 32)
    assert encoder.tokens(["film " * 100], longest=9).shape == (1, 9)
    encoder.train()
    assert not torch.equal(encoder(ids), encoder(ids)), "two passes have other dropout"
    assert model_digests(str(tmp_path)).keys() == {"weights", "tokenizer"}
