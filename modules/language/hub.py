"""Published causal language models through `transformers` (the extra `lm`)."""

import inspect
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from .hub_files import ModelMissing, find_model
from .model import Encoded, LanguageModel
from .prompts import Template

Weights = Literal["auto", "float32", "float16", "bfloat16"]


class HubModel(LanguageModel):
    """A causal language model of `transformers` with its fast tokenizer.

    With `chat`, and where the tokenizer has a chat template, exemplars and query are the turns of a conversation, the
    last of which the model has begun to answer. Raises ValueError for a tokenizer that cannot tell where tokens stand.
    """

    def __init__(self, net: nn.Module, tokenizer: Any, *, chat: bool = True) -> None:
        if not tokenizer.is_fast:
            raise ValueError("this needs a fast tokenizer (tokenizer.json), which tells where tokens stand")
        self.net = net.eval()
        self.tokenizer = tokenizer
        self.chat = chat and bool(tokenizer.chat_template)
        config: Any = net.config
        self.longest = getattr(config, "max_position_embeddings", None)
        self._takes = set(inspect.signature(net.forward).parameters)

    def prompt(self, template: Template, exemplars: list[tuple[str, str]], query: str) -> str:
        if not self.chat:
            return template.prompt(exemplars, query)
        *shown, last = template.turns(exemplars, query)
        turns = [{"role": role, "content": said} for turn in shown for role, said in zip(_ROLES, turn, strict=True)]
        turns.append({"role": "user", "content": last.asked})
        text: str = self.tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        return (text if text[-1:].isspace() else text + " ") + last.answered

    def encode(self, texts: Sequence[str]) -> list[Encoded]:
        """A chat template has written the special tokens already; other texts get them."""
        begin = self.tokenizer.bos_token
        special = [not (self.chat and begin and text.startswith(begin)) for text in texts]
        found: dict[int, Encoded] = {}
        for kind in set(special):
            chosen = [index for index, each in enumerate(special) if each == kind]
            some = self.tokenizer(
                [texts[index] for index in chosen], add_special_tokens=kind, return_offsets_mapping=True
            )
            for index, ids, places in zip(chosen, some["input_ids"], some["offset_mapping"], strict=True):
                found[index] = Encoded(list(ids), [(int(a), int(b)) for a, b in places])
        return [found[index] for index in range(len(texts))]

    def logits(self, ids: Tensor, real: Tensor, last: int) -> Tensor:
        keep = {"logits_to_keep": last} if "logits_to_keep" in self._takes else {}
        logits: Tensor = self.net(**self._inputs(ids, real), **keep).logits
        return logits[:, -last:]

    def last_row(self, ids: Tensor, real: Tensor) -> Tensor:
        """Computed with attention in full ("eager"); scores are not, which takes a quarter of the time."""
        keep = {"logits_to_keep": 1} if "logits_to_keep" in self._takes else {}
        net: Any = self.net
        fast = net.config._attn_implementation
        net.set_attn_implementation("eager")
        try:
            attention: Tensor = net(**self._inputs(ids, real), **keep, output_attentions=True).attentions[-1]
        finally:
            net.set_attn_implementation(fast)
        return attention[:, :, -1]

    def _inputs(self, ids: Tensor, real: Tensor) -> dict[str, Any]:
        given: dict[str, Any] = {"input_ids": ids, "attention_mask": real.long()}
        if "position_ids" in self._takes:  # counted from the first token that is not padding
            given["position_ids"] = (real.long().cumsum(1) - 1).clamp(min=0)
        return given | ({"use_cache": False} if "use_cache" in self._takes else {})


_ROLES = ("user", "assistant")


def load_model(name: str, *, weights: Weights = "auto", device: str = "cpu", chat: bool = True) -> HubModel:
    """The causal language model `name`, found as `find_model` does; no code of its own is run.

    `weights` is the type of its numbers, "auto": bfloat16 on a GPU, float32 elsewhere. Raises ModelMissing; ValueError
    for files that hold no such model.
    """
    folder = find_model(name)
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    kind = ("bfloat16" if device.startswith("cuda") else "float32") if weights == "auto" else weights
    options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **options)
        net: Any = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=getattr(torch, kind), use_safetensors=True, **options
        )
    except OSError as error:
        raise ModelMissing(f"model {name!r} cannot be read from {folder}: {str(error).splitlines()[0]}") from error
    return HubModel(net.to(device), tokenizer, chat=chat)
