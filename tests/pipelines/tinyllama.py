"""A tiny Llama with a tokenizer trained on the spot, saved as the hub keeps them."""

from pathlib import Path
from typing import Any

import torch

SENTENCES = [
    f"sentence: a {word} film number {n}\nThe answer is {label}.\n\n"
    for n in range(30)
    for word, label in (("good", "positive"), ("dull", "negative"))
]
CHAT = (
    "{{ bos_token }}{% for m in messages %}[{{ m['role'] }}] {{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)


def trained_tokenizer(**options: Any) -> Any:
    """Byte-level BPE of a few hundred tokens, in which "positive" is one token and rare words are several."""
    import tokenizers
    from transformers import PreTrainedTokenizerFast

    inner = tokenizers.Tokenizer(tokenizers.models.BPE())
    inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=330, special_tokens=["<s>", "</s>"], initial_alphabet=alphabet, show_progress=False
    )
    inner.train_from_iterator(SENTENCES, trainer)
    inner.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", inner.token_to_id("<s>"))]
    )
    return PreTrainedTokenizerFast(tokenizer_object=inner, bos_token="<s>", eos_token="</s>", **options)


def save_llama(folder: Path, *, seed: int = 0, chat: bool = False, **sizes: Any) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = trained_tokenizer()
    if chat:
        tokenizer.chat_template = CHAT
    torch.manual_seed(seed)
    sizes = {
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 128,
        "initializer_range": 0.5,
    } | sizes
    net = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), bos_token_id=0, eos_token_id=1, **sizes))
    net.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
