"""What the figures share: a small Llama that has learned to retrieve, the prompts it reads, and ways to shorten them.

The model sees sequences of at most 144 tokens of content while it learns, so that longer prompts take it out of what it
knows. All figures of one seed read one training.
"""

from collections.abc import Callable
from typing import Any

from featurelab.pipelines import Cost, Field, TrainedConfig, data, fit, language, learners, stream_seed, torch

KEY, VALUE, REST = 1, 2, 3  # tokens of a prompt beside its content, of an answer, and the loss of a needle's two values
MOST_TOKENS = 25_000  # tokens that are decoded at once


class RetrievalConfig(TrainedConfig):
    n_needles: int = Field(4, ge=2, le=16, description="needles in a prompt, one of which is asked for")
    layers: int = Field(4, ge=1, description="m: decoder layers")
    width: int = Field(64, ge=8, multiple_of=8, description="numbers that stand for a token")
    heads: int = Field(4, ge=1, description="query heads, of which two share keys and values")
    lr: float = Field(2e-3, gt=0, description="learning rate of AdamW")
    weight_decay: float = Field(0.01, ge=0, description="AdamW's decoupled weight decay")
    warmup: int = Field(50, ge=0, description="steps of linear warm-up")
    lengths: tuple[int, ...] = Field((12, 24, 48, 96, 144), description="content of the curriculum's levels, tokens")
    batch_sizes: tuple[int, ...] = Field((32, 24, 16, 8, 6), description="sequences a step, at each level")
    advance: float = Field(0.15, gt=0, description="running mean of the loss, nats a token, at which a level is over")
    steps: int = Field(300, ge=0, description="steps after the last level is reached")
    most_steps: int = Field(1000, ge=1, description="steps in all; the fit ends there, whatever the level")

    @property
    def hidden(self) -> int:
        return 2 * self.width


def untrained(config: RetrievalConfig) -> Any:
    """The `LlamaForCausalLM` of this config as it is drawn."""
    return language.llama(
        len(data.NEEDLE_WORDS), width=config.width, hidden=config.hidden, layers=config.layers, heads=config.heads,
        kv_heads=max(1, config.heads // 2), seed=config.streams.init, dtype=config.dtype,
    )  # fmt: skip


def trained(config: RetrievalConfig, recorder: Any) -> Any:
    """The model after its curriculum, a `LlamaForCausalLM` in eval mode on the CPU or where the fit left it."""
    needles, most = config.n_needles, config.most_steps
    lengths = [max(length, data.NEEDLE * needles) for length in config.lengths]
    levels = [
        data.NeedlePrompts(
            most * batch, length, data.stream(config.streams.data, f"level {number}"), needles=needles, batch_size=batch
        )
        for number, (length, batch) in enumerate(zip(lengths, config.batch_sizes, strict=True))
    ]  # fmt: skip
    model = untrained(config)
    learner = learners.Supervised(
        language.LogitsOf(model), loss=learners.answer_loss(1, behind=1, tokens=2),
        optimizer=learners.adamw(config.lr, betas=(0.9, 0.98), weight_decay=config.weight_decay, warmup=config.warmup),
    )  # fmt: skip
    curriculum = data.Levels(levels, seed=config.streams.order, name="keyed needles")
    up = learners.Promotion(below=config.advance, then=config.steps)
    fit(learner, curriculum, config, recorder, steps=most, probes=[up])
    history = learner.loss_history
    taken = len(history)
    recorder.log({"loss/train": history[-50:].mean().item(), "level/reached": float(curriculum.level)}, step=taken)
    return model.eval()
