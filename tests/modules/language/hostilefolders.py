"""Folders of models as an attacker writes them: each function spoils a copy of a good one.

`CANARY` is what nothing may create.
"""

import json
import os
import shutil
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

CANARY = "canary"
CODE = "import pathlib\npathlib.Path({!r}).write_text('executed')\nraise RuntimeError('executed')\n"


class Payload:
    """What is unpickled calls `os.system`."""

    def __init__(self, folder: Path) -> None:
        self.command = f"touch {folder.parent / CANARY}"

    def __reduce__(self) -> Any:
        return os.system, (self.command,)


def config(folder: Path, **values: Any) -> None:
    changed(folder / "config.json", **values)


def changed(file: Path, **values: Any) -> None:
    found = json.loads(file.read_text()) if file.is_file() else {}
    file.write_text(json.dumps({key: value for key, value in (found | values).items() if value != "absent"}))


def pickled(folder: Path, content: Any, **options: Any) -> None:
    (folder / "model.safetensors").unlink()
    torch.save(content, folder / "pytorch_model.bin", **options)


def code(folder: Path, file: str) -> None:
    path = folder / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(CODE.format(str(folder.parent / CANARY)))


def own_code(folder: Path, model_type: str) -> None:
    code(folder, "modeling_evil.py")
    names = {"AutoConfig": "C", "AutoModel": "M", "AutoModelForCausalLM": "M", "AutoTokenizer": "T"}
    config(folder, model_type=model_type, auto_map={key: f"modeling_evil.{name}" for key, name in names.items()})
    changed(folder / "tokenizer_config.json", auto_map={"AutoTokenizer": ["modeling_evil.T", None]})


def header(folder: Path, said: Any, length: int | None = None, numbers: bytes = b"\0" * 64) -> None:
    content = said if isinstance(said, bytes) else json.dumps(said).encode()
    length = len(content) if length is None else length
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", length) + content + numbers)


def index(folder: Path, content: Any) -> None:
    file = folder / "model.safetensors.index.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content))


def instead(folder: Path, file: str, make: Callable[[Path], object]) -> None:
    (folder / file).unlink(missing_ok=True)
    make(folder / file)


def weights(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    from safetensors.torch import load_file, save_file

    found = load_file(folder / "model.safetensors")
    change(found)
    save_file(found, folder / "model.safetensors", {"format": "pt"})


def compressed(folder: Path) -> None:
    """The file that torch.save wrote, with half a gigabyte of zeros that take next to nothing."""
    pickled(folder, {"a": torch.zeros(3)})
    file = folder / "pytorch_model.bin"
    with zipfile.ZipFile(file) as old:
        parts = {part.filename: old.read(part) for part in old.infolist()}
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as new:
        for name, content in parts.items():
            new.writestr(name, b"\0" * (1 << 29) if name.endswith("data/0") else content)


def large_tokenizer(folder: Path, megabytes: int = 100) -> None:
    file = folder / "tokenizer.json"
    found = json.loads(file.read_text())
    found["model"]["vocab"] |= {"x" * 990 + str(number): 1000 + number for number in range(megabytes << 10)}
    file.write_text(json.dumps(found))


def growing(folder: Path) -> None:
    """Each e becomes ten, ten times over."""
    steps = [{"type": "Replace", "pattern": {"String": "e"}, "content": "e" * 10}] * 10
    changed(folder / "tokenizer.json", normalizer={"type": "Sequence", "normalizers": steps})


def link(target: str) -> Callable[[Path], object]:
    return lambda path: path.symlink_to(target)


SAFE = {"a": {"dtype": "F32", "shape": [16], "data_offsets": [0, 64]}}
# what is wrong -> what spoils the folder, and what the line says of it when the folder is looked at
FOLDERS: dict[str, tuple[Callable[[Path], object], str]] = {
    "pickled payload": (lambda f: pickled(f, {"a": Payload(f)}), "pytorch_model.bin holds more than tensors"),
    "pickled payload, old": (
        lambda f: pickled(f, {"a": Payload(f)}, _use_new_zipfile_serialization=False),
        "holds more than tensors",
    ),
    "pickled network": (lambda f: pickled(f, torch.nn.Linear(2, 2)), "holds more than tensors"),
    "pickled text": (lambda f: pickled(f, {"a": "b"}), "one dictionary of tensors"),
    "pickled bomb": (compressed, "would unpack to"),
    "no pickle": (
        lambda f: (pickled(f, {}), (f / "pytorch_model.bin").write_bytes(b"no pickle")),
        "holds more than tensors",
    ),
    "code, unknown type": (lambda f: own_code(f, "evil"), "config.json cannot be read"),
    "code, generation": (lambda f: (code(f, "custom_generate/generate.py"), config(f, hidden_size=-1)), "config.json"),
    "unknown type": (lambda f: config(f, model_type="no such"), "config.json cannot be read"),
    "type of a path": (lambda f: config(f, model_type="../../etc"), "config.json cannot be read"),
    "type no text": (lambda f: config(f, model_type=["llama"]), "config.json"),
    "an adapter": (lambda f: changed(f / "adapter_config.json", base_model_name_or_path="a/b"), "adapter_config.json"),
    "quantised": (lambda f: config(f, quantization_config={"quant_method": "mxfp4"}), "quantization_config"),
    "foreign kernels": (lambda f: config(f, attn_implementation="owner/kernel"), "kernels from other places"),
    "foreign kernels, inside": (lambda f: config(f, x={"_attn_implementation": "a/b:c"}), "kernels from other places"),
    "foreign weights": (lambda f: config(f, transformers_weights="../../x.safetensors"), "transformers_weights"),
    "10^9 wide": (lambda f: config(f, hidden_size=10**9), "describes a network of|config.json"),
    "10^12 wide": (lambda f: config(f, hidden_size=10**12), "hidden_size is 1000000000000"),
    "10^9 layers": (lambda f: config(f, num_hidden_layers=10**9), "num_hidden_layers is 1000000000"),
    "10^9 words": (lambda f: config(f, vocab_size=10**9), "describes a network of"),
    "10^9 labels": (lambda f: config(f, num_labels=10**9), "num_labels is 1000000000"),
    "10^400 heads": (lambda f: (f / "config.json").write_text('{"heads": 1' + "0" * 400 + "}"), "heads is 1000"),
    "10^5 digits": (lambda f: (f / "config.json").write_text('{"heads": ' + "9" * 100_000 + "}"), "config.json"),
    "infinite": (lambda f: config(f, rms_norm_eps=float("inf")), "rms_norm_eps is inf"),
    "negative": (lambda f: config(f, vocab_size=-7), "config.json"),
    "width text": (lambda f: config(f, hidden_size="wide"), "config.json"),
    "no heads": (lambda f: config(f, num_attention_heads=0), "config.json"),
    "config no JSON": (lambda f: (f / "config.json").write_text("{"), "config.json cannot be read"),
    "config a list": (lambda f: (f / "config.json").write_text("[1]"), "must hold one JSON object"),
    "config deep": (lambda f: (f / "config.json").write_text('{"a":' * 50_000), "config.json cannot be read"),
    "config no UTF-8": (lambda f: (f / "config.json").write_bytes(b"{\xff}"), "config.json cannot be read"),
    "config of 3 GB": (lambda f: os.truncate(f / "config.json", 3 << 30), "bytes, but at most 16,777,216 are allowed"),
    "tokenizer of 100 MB": (large_tokenizer, "tokenizer.json has .* bytes, but at most 67,108,864 are allowed"),
    "tokenizer settings of 3 GB": (lambda f: os.truncate(f / "tokenizer_config.json", 3 << 30), "at most 16,777,216"),
    "header of 10^12": (lambda f: header(f, SAFE, 10**12), "model.safetensors cannot be read"),
    "header beyond": (
        lambda f: header(f, {"a": {"dtype": "F32", "shape": [10**12], "data_offsets": [0, 4 * 10**12]}}),
        "cannot be read",
    ),
    "header that lies": (
        lambda f: header(f, {"a": {"dtype": "F32", "shape": [10**6], "data_offsets": [0, 64]}}),
        "cannot be read",
    ),
    "header overflows": (
        lambda f: header(f, {"a": {"dtype": "F32", "shape": [2**62, 2**62], "data_offsets": [0, 64]}}),
        "cannot be read",
    ),
    "header shared": (lambda f: header(f, {"a": SAFE["a"], "b": SAFE["a"]}), "cannot be read"),
    "header no JSON": (lambda f: header(f, b"{" * 4000), "model.safetensors cannot be read"),
    "weights empty": (lambda f: (f / "model.safetensors").write_bytes(b""), "model.safetensors cannot be read"),
    "weights cut": (lambda f: os.truncate(f / "model.safetensors", 9000), "model.safetensors cannot be read"),
    "weights a fifo": (lambda f: instead(f, "model.safetensors", os.mkfifo), "no plain file"),
    "tokenizer a fifo": (lambda f: instead(f, "tokenizer_config.json", os.mkfifo), "no plain file"),
    "template a fifo": (lambda f: instead(f, "chat_template.jinja", os.mkfifo), "no plain file"),
    "weights a device": (lambda f: instead(f, "model.safetensors", link("/dev/zero")), "is a link out of"),
    "link to itself": (
        lambda f: instead(f, "generation_config.json", link("generation_config.json")),
        "link to nothing",
    ),
    "link to nothing": (lambda f: instead(f, "tokenizer.json", link("nowhere")), "link to nothing"),
    "link to passwords": (lambda f: instead(f, "merges.txt", link("/etc/passwd")), "is a link out of"),
    "index outside": (
        lambda f: index(f, {"weight_map": {"a": "../../../etc/passwd"}}),
        "must name files of this folder",
    ),
    "index absolute": (lambda f: index(f, {"weight_map": {"a": "/etc/passwd"}}), "must name files of this folder"),
    "index no text": (lambda f: index(f, {"weight_map": {"a": 7}}), "lacks 7"),
    "index without map": (lambda f: index(f, {}), "must name files of this folder"),
    "index no JSON": (lambda f: index(f, "{" * 99), "model.safetensors.index.json cannot be read"),
    "index lacks a file": (lambda f: index(f, {"weight_map": {"a": "b.safetensors"}}), "lacks b.safetensors"),
    "generation no JSON": (lambda f: (f / "generation_config.json").write_text("{"), "generation_config.json cannot"),
    "pictures of 10^9": (
        lambda f: changed(f / "preprocessor_config.json", size={"height": 10**9, "width": 10**9}),
        "at most 4,096",
    ),
}
# what is found when the model is loaded
LOADED: dict[str, tuple[Callable[[Path], object], str]] = {
    "weights NaN": (lambda f: weights(f, lambda w: w["model.norm.weight"].fill_(float("nan"))), "NaN or infinite"),
    "weights of other shapes": (
        lambda f: weights(f, lambda w: w.update({"model.norm.weight": torch.ones(3)})),
        "cannot be read",
    ),
    "weights missing": (lambda f: weights(f, lambda w: w.pop("model.norm.weight")), "lacks weights: model.norm.weight"),
    "tokenizer no JSON": (lambda f: (f / "tokenizer.json").write_text("{"), "cannot be read"),
    "tokenizer of code": (
        lambda f: (
            code(f, "evil.py"),
            changed(
                f / "tokenizer_config.json", tokenizer_class="Evil", auto_map={"AutoTokenizer": ["evil.Evil", None]}
            ),
            (f / "tokenizer.json").unlink(),
        ),
        "cannot be read",
    ),
    "tokenizer that grows": (growing, "makes texts more than"),
}
# what is not used
IGNORED: dict[str, Callable[[Path], object]] = {
    "code beside a known type": lambda f: own_code(f, "llama"),
    "code for generation": lambda f: code(f, "custom_generate/generate.py"),
    "a pickle beside safetensors": lambda f: torch.save({"a": Payload(f)}, f / "pytorch_model.bin"),
    "other pickles": lambda f: torch.save(Payload(f), f / "training_args.bin"),
    "packages": lambda f: [code(f, name) for name in ("torch.py", "transformers.py", "__init__.py", "tokenizers.py")],
}


def spoiled(model: Path, root: Path, spoil: Callable[[Path], object]) -> Path:
    folder = root / "model"
    shutil.copytree(model, folder)
    spoil(folder)
    return folder
