"""What the figures share: a small Llama that has learned to retrieve, the prompts it reads, and ways to shorten them.

The model sees sequences of at most 144 tokens of content while it learns, so that longer prompts take it out of what it
knows. All figures of one seed read one training.
"""

from collections.abc import Callable
from typing import Any, Literal

from featurelab.pipelines import (
    Cost,
    Field,
    TrainedConfig,
    data,
    decoding,
    fit,
    language,
    learners,
    measures,
    model_validator,
    torch,
)

AT_ONCE = 50  # prompts that are decoded at once
MARKS = 3  # tokens of a prompt beside its content: its beginning, Q and the key


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
    steps: int = Field(200, ge=0, description="steps after the last level is reached, with a falling rate")
    most_steps: int = Field(1000, ge=1, description="steps in all; the fit ends there, whatever the level")
    filter_layer: int | None = Field(
        None, ge=1, description="r: layers that read the whole prompt; none: the best on prompts held out"
    )
    keep: int = Field(16, ge=1, description="k: tokens that are kept of a prompt")
    pool: Literal["avg", "max", "none"] = Field("max", description="how scores are pooled along the prompt")
    kernel: int = Field(5, ge=1, description="tokens that are pooled, odd")
    score: Literal["raw", "scaled", "softmax"] = Field("raw", description="what of a layer's attention is summed")
    keep_last: int = Field(2, ge=0, description="last tokens that are kept in any case: Q and the key")
    keep_first: int = Field(0, ge=0, description="first tokens that are kept in any case")
    window: int = Field(4, ge=1, description="SnapKV, H2O: last tokens that are kept, and in SnapKV asked")

    @model_validator(mode="after")
    def _selects(self) -> "RetrievalConfig":
        if self.kernel % 2 == 0:
            raise ValueError(f"kernel = {self.kernel}: it must be odd")
        most, fixed = max(getattr(self, "keeps", [self.keep])), self.keep_first + self.keep_last
        if fixed > most:
            raise ValueError(f"keep_first and keep_last are {fixed} tokens, and {most} are kept")
        if self.filter_layer and not getattr(self, "model", None) and self.filter_layer > self.layers:
            raise ValueError(f"filter_layer = {self.filter_layer}: the model has {self.layers} layers")
        return self

    @property
    def hidden(self) -> int:
        return 2 * self.width


def untrained(config: RetrievalConfig) -> Any:
    """The `LlamaForCausalLM` of this config as it is drawn."""
    return language.untrained_llama(
        len(data.NEEDLE_WORDS),
        width=config.width,
        hidden=config.hidden,
        layers=config.layers,
        heads=config.heads,
        kv_heads=max(1, config.heads // 2),
        seed=config.streams.init,
        dtype=config.dtype,
    )


def trained(config: RetrievalConfig, recorder: Any) -> Any:
    """The model after its curriculum, a `LlamaForCausalLM` in eval mode on the CPU or where the fit left it."""
    needles, most = config.n_needles, config.most_steps
    lengths = [max(length, data.NEEDLE * needles) for length in config.lengths]
    levels = [
        data.NeedlePrompts(
            most * batch, length, data.stream(config.streams.data, f"level {number}"), needles=needles, batch_size=batch
        )
        for number, (length, batch) in enumerate(zip(lengths, config.batch_sizes, strict=True))
    ]
    model = untrained(config)
    loss = learners.answer_loss(data.NEEDLE_WORDS.index("Q"), behind=1, tokens=data.NEEDLE - 1)
    learner = learners.Supervised(
        language.LogitsOf(model),
        loss=loss,
        optimizer=learners.adamw(config.lr, betas=(0.9, 0.98), weight_decay=config.weight_decay, warmup=config.warmup),
    )
    curriculum: Any = data.Levels(levels, seed=config.streams.order, name="keyed needles")
    up = learners.Promotion(below=config.advance, then=config.steps)
    fit(learner, curriculum, config, recorder, steps=most, probes=[up])
    history = learner.loss_history
    taken = len(history)
    recorder.log({"loss/train": history[-50:].mean().item(), "level/reached": float(curriculum.level)}, step=taken)
    return model.eval()


def prompts(
    config: RetrievalConfig, length: int, count: int, depth: float | None = None, name: str = "prompts"
) -> "data.Needles":
    """`count` prompts with `length` tokens of content that no model has seen; `depth` as in `data.hidden_needles`."""
    rng = data.stream(config.streams.data, f"{name} {length} {depth}")
    return data.hidden_needles(count, length, rng, needles=config.n_needles, depth=depth)


def best_layer(config: RetrievalConfig, model: Any, count: int = 60) -> int:
    """The layer, of the last trained length, whose selection holds the whole needle most often on prompts held out."""
    if config.filter_layer is not None:
        return config.filter_layer
    held_out = prompts(config, config.lengths[-1], count, name="held out")
    shares = [hit(each, held_out) for each in selections(config, model, held_out.prompts, config.keep)]
    return max(range(len(shares)), key=lambda index: shares[index]) + 1


def selections(config: RetrievalConfig, model: Any, ids: Any, keep: int, **changes: Any) -> "list[torch.Tensor]":
    """What each layer, as filter layer, would keep of the prompts: (n, k) each, in one pass."""
    options = {name: getattr(config, name) for name in ("pool", "kernel", "score", "keep_last", "keep_first")} | changes
    score = options.pop("score")
    rows = decoding.layer_scores(model, ids, score=score)
    choice = decoding.Choice(keep, **options)
    return list(choice(torch.stack(rows)).transpose(0, 1))


def hit(chosen: "torch.Tensor", found: "data.Needles") -> float:
    """The share of the prompts of which all tokens of the needle that is asked for are kept."""
    share = measures.needle_share(chosen.cpu(), found.begins[:, 0], data.NEEDLE)
    return (share == 1).double().mean().item()


def right(decoder: Any, found: "data.Needles", ids: Any = None) -> "torch.Tensor":
    """Which prompts (n,) are answered with both values, in their order."""
    ids = found.prompts if ids is None else ids
    tokens = [decoder.generate(part, max_new_tokens=data.NEEDLE - 1).tokens for part in ids.split(AT_ONCE)]
    return (torch.cat(tokens).cpu() == found.answers).all(1)


def gemfilter(model: Any, keep: int, config: RetrievalConfig, **changes: Any) -> Any:
    names = ("filter_layer", "pool", "kernel", "score", "keep_last", "keep_first")
    options = {name: getattr(config, name) for name in names} | {"keep": keep} | changes
    return decoding.gemfilter(model, **options)


def last_tokens(model: Any, keep: int) -> Any:
    return decoding.given_tokens(model, lambda row: torch.arange(max(0, len(row) - keep), len(row)))


def random_tokens(model: Any, keep: int, config: RetrievalConfig) -> Any:
    """Any tokens, and the last ones that are kept in any case."""
    rng = data.stream(config.streams.data, "random tokens")
    return decoding.given_tokens(model, lambda row: among(range(len(row)), len(row), keep, config.keep_last, rng))


def among(candidates: Any, n: int, keep: int, keep_last: int, rng: Any) -> "torch.Tensor":
    """`keep` of n positions: the last `keep_last`, and random ones of the candidates, or others where these are few."""
    ahead = [token for token in candidates if token < n - keep_last]
    rest = [token for token in range(n - keep_last) if token not in set(ahead)]
    wanted = min(keep, n) - min(keep_last, n)
    drawn = [*rng.permutation(ahead)[:wanted], *rng.permutation(rest)[: max(0, wanted - len(ahead))]]
    return torch.tensor(sorted([*map(int, drawn), *range(n - min(keep_last, n), n)]))


PRESET = RetrievalConfig(filter_layer=2)
# of a model and k: the methods that are compared, and what knows nothing of the question
DECODERS: dict[str, Callable[..., Any]] = {
    "full": lambda model, keep, config=PRESET: decoding.full(model),
    "gemfilter": lambda model, keep, config=PRESET: gemfilter(model, keep, config),
    "snapkv": lambda model, keep, config=PRESET: decoding.snapkv(
        model, keep=keep, window=min(config.window, keep), kernel=config.kernel
    ),
    "h2o": lambda model, keep, config=PRESET: decoding.h2o(model, keep=keep, window=min(config.window, keep)),
    "one_run": lambda model, keep, config=PRESET: gemfilter(model, keep, config, runs=1),
    "last": lambda model, keep, config=PRESET: last_tokens(model, keep),
    "random": lambda model, keep, config=PRESET: random_tokens(model, keep, config),
}


def cost(config: RetrievalConfig) -> Cost:
    """Training, at the length of the last level: more than the curriculum takes."""
    layer = config.width * (3 * config.width + 3 * config.hidden)
    parameters = config.layers * layer + 2 * len(data.NEEDLE_WORDS) * config.width
    tokens = config.batch_sizes[-1] * (config.lengths[-1] + 4 * config.n_needles + 1)
    steps = config.most_steps
    rows = sum(batch * (length + 17) for batch, length in zip(config.batch_sizes, config.lengths, strict=True))
    memory = 2.0 * steps * rows + 4.0 * (4 * parameters + 40 * tokens * config.width * config.layers)
    return Cost(parameters, 6.0 * parameters * tokens * steps, memory, steps)
