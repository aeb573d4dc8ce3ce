"""Tiny encoders with random weights, saved as the hub keeps CLIP, vision transformers, MoCo v3 and BERT."""

import json
from pathlib import Path
from typing import Any

import torch

SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
EDGE, PATCH = 16, 8
WORDS = ["film", "good", "dull", "very", "text", "train", "test", "of", "class", "label", "not"]


def save_clip(folder: Path, *, seed: int = 0, edge: int = EDGE) -> None:
    """Both towers, as CLIP's repositories hold, with its old way to write how pictures are prepared."""
    from transformers import CLIPConfig, CLIPModel

    torch.manual_seed(seed)
    seen = {**SIZES, "image_size": edge, "patch_size": PATCH, "projection_dim": 12}
    said = {**SIZES, "vocab_size": 30, "projection_dim": 12, "bos_token_id": 0, "eos_token_id": 1}
    CLIPModel(CLIPConfig(text_config=said, vision_config=seen, projection_dim=12)).save_pretrained(folder)
    _pictures(
        folder,
        {
            "feature_extractor_type": "CLIPFeatureExtractor",
            "size": edge,
            "crop_size": edge,
            "do_center_crop": True,
            "resample": 3,
        },
        [0.48, 0.46, 0.41],
        [0.27, 0.26, 0.28],
    )


def save_vit(folder: Path, *, seed: int = 0) -> Any:
    from transformers import ViTConfig, ViTModel

    torch.manual_seed(seed)
    net = ViTModel(ViTConfig(**SIZES, image_size=EDGE, patch_size=PATCH, layer_norm_eps=1e-6), add_pooling_layer=False)
    net.save_pretrained(folder)
    _pictures(
        folder,
        {"image_processor_type": "ViTImageProcessor", "size": {"height": EDGE, "width": EDGE}, "resample": 2},
        [0.5] * 3,
        [0.5] * 3,
    )
    return net


def save_swin(folder: Path, *, seed: int = 0) -> Any:
    from transformers import SwinConfig, SwinModel

    torch.manual_seed(seed)
    sizes: dict[str, Any] = {"embed_dim": 16, "depths": [1, 1], "num_heads": [2, 2], "window_size": 2}
    net = SwinModel(SwinConfig(**sizes, image_size=EDGE, patch_size=2))
    net.save_pretrained(folder)
    _pictures(
        folder,
        {"image_processor_type": "ViTImageProcessor", "size": {"height": EDGE, "width": EDGE}, "resample": 3},
        [0.5] * 3,
        [0.5] * 3,
    )
    return net


def save_moco(folder: Path, *, seed: int = 0, **sizes: int) -> dict[str, torch.Tensor]:
    """A vision transformer under timm's names with a head, beside a configuration that says nearly nothing."""
    from safetensors.torch import save_file

    made = {"width": 16, "depth": 2, "inner": 24, "heads": 2, "edge": EDGE, "patch": PATCH} | sizes
    chance = torch.Generator().manual_seed(seed)
    width, inner = made["width"], made["inner"]
    shapes = {
        "cls_token": (1, 1, width),
        "pos_embed": (1, 1 + (made["edge"] // made["patch"]) ** 2, width),
        "patch_embed.proj.weight": (width, 3, made["patch"], made["patch"]),
        "patch_embed.proj.bias": (width,),
        "norm.weight": (width,),
        "norm.bias": (width,),
        "head.weight": (7, width),
        "head.bias": (7,),
    }
    for layer in range(made["depth"]):
        parts = {
            "norm1": (),
            "attn.qkv": (3 * width, width),
            "attn.proj": (width, width),
            "norm2": (),
            "mlp.fc1": (inner, width),
            "mlp.fc2": (width, inner),
        }
        for part, shape in parts.items():
            shapes[f"blocks.{layer}.{part}.weight"] = shape or (width,)
            shapes[f"blocks.{layer}.{part}.bias"] = shape[:1] or (width,)
    weights = {name: 0.3 * torch.randn(shape, generator=chance) for name, shape in shapes.items()}
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"num_classes": 7, "num_heads": made["heads"]}))
    return weights


def save_bert(folder: Path, *, seed: int = 0, pickled: bool = False) -> Any:
    """A BERT whose vocabulary is a few words, its tokenizer as an old repository has it: the words alone."""
    from transformers import BertConfig, BertModel

    folder.mkdir(parents=True, exist_ok=True)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *"0123456789"]
    (folder / "vocab.txt").write_text("\n".join(words))
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True, "model_max_length": 512}))
    torch.manual_seed(seed)
    config = BertConfig(vocab_size=len(words), max_position_embeddings=32, initializer_range=0.3, **SIZES)
    net = BertModel(config, add_pooling_layer=False)
    net.save_pretrained(folder)
    if pickled:
        (folder / "model.safetensors").unlink()
        torch.save(net.state_dict(), folder / "pytorch_model.bin")
    return net.eval()


def _pictures(folder: Path, options: dict[str, Any], mean: list[float], std: list[float]) -> None:
    same = {"do_resize": True, "do_normalize": True, "image_mean": mean, "image_std": std}
    (folder / "preprocessor_config.json").write_text(json.dumps(options | same))


def narrow_mobilenet(folder: Path) -> None:
    """A MobileNet of a quarter of its width, 256 features, as its repositories on the hub hold it."""
    from transformers import MobileNetV1Config, MobileNetV1ForImageClassification

    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = MobileNetV1ForImageClassification(MobileNetV1Config(depth_multiplier=0.25, num_labels=3))
        for name, value in net.named_parameters():
            if "convolution" in name:  # by default activations vanish from layer to layer
                torch.nn.init.normal_(value, std=1.5 * value[0].numel() ** -0.5)
        net.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps({"image_mean": [0.5] * 3, "image_std": [0.5] * 3}))
