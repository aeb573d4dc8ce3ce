"""Intercept the attention of a model of `transformers`, layer by layer, to observe or replace it.

Every family of models there calls one function with queries and keys after rotary positions, norms and fused
projections. While a model is `held`, that function is ours: it passes each call to a listener, which calls what the
model would have run (the same function, hence the same bits), changes its inputs, or ends the pass.
"""

import inspect
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from featurelab.modules.language.hub_files import require_transformers

PREFIX = "featurelab_"
BASES = ("sdpa", "eager")  # which read a mask of any shape


@dataclass(frozen=True)
class Call:
    """One layer's attention: query (B, heads, q, e), key (B, kv_heads, n, e) and value, of the tokens of this pass.

    `mask` is the model's own: None if it is causal alone, else (B, 1, q, n), bool (may attend) or to be added. `window`
    is how many positions back, its own included, a token of this layer attends to; None: all. Products are scaled and,
    with `softcap` c, mapped to c tanh(. / c); `sinks` (heads,) take a share of each softmax that goes to no token.
    `last_only`: of the result nothing but the last token's row is read, as in the last layer of a pass over a prompt.
    """

    layer: int
    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    scaling: float
    window: int | None
    softcap: float | None
    sinks: Tensor | None
    run: Callable[["Call"], Any] = field(repr=False)
    last_only: bool = False

    def attended(self) -> Any:
        """The result of the model's own attention for this call, or if `last_only` the last row in place of all."""
        if not self.last_only:
            return self.run(self)
        mask = None if self.mask is None else self.mask[:, :, -1:]
        found, *rest = self.run(replace(self, query=self.query[:, :, -1:], mask=mask, last_only=False))
        return found.expand(-1, self.query.shape[2], -1, -1), *rest

    def masked(self, key: Tensor, value: Tensor, seen: Tensor | None) -> Any:
        """The same queries over other keys and values; `seen` (B, 1 or heads, q, keys) says which, None: all."""
        return self.run(replace(self, key=key, value=value, mask=seen))


class Listener(Protocol):
    """Receives each call of attention in a pass, and returns what attention returns."""

    def __call__(self, call: Call, /) -> Any: ...


class Enough(Exception):
    """Ends a pass whose remaining layers are not needed."""


@dataclass(frozen=True)
class Shape:
    """Layers, heads and windows of a model. `windows` has one entry for each layer, None if it attends to all."""

    layers: int
    heads: int
    kv_heads: int
    windows: tuple[int | None, ...]


def shape_of(model: Any) -> Shape:
    """The shape of a model. Raises ValueError unless all layers are causal self-attention; ModelMissing."""
    require_transformers()
    name, config = type(model).__name__, getattr(model, "config", None)
    if config is None or not hasattr(model, "set_attn_implementation"):
        raise ValueError(f"{name} is not a causal language model of transformers")
    text = config.get_text_config(decoder=True)
    if config.is_encoder_decoder or getattr(text, "add_cross_attention", False):
        raise ValueError(f"{name} has an encoder or cross-attention: only decoders of self-attention can be filtered")
    if getattr(text, "cross_attention_layers", None):
        raise ValueError(f"{name} has cross-attention layers: only decoders of self-attention can be filtered")
    if getattr(model, "_is_stateful", False):
        raise ValueError(f"{name} has state-space layers, which have no keys of single tokens")
    if not model._can_set_attn_implementation():
        raise ValueError(f"{name} does not use the attention interface of transformers")
    if config._attn_implementation.removeprefix(PREFIX) not in BASES:
        raise ValueError(
            f"attention must be one of {', '.join(BASES)}, got {config._attn_implementation!r}: "
            "call model.set_attn_implementation"
        )
    if getattr(text, "kv_sharing_modes", None) or getattr(text, "num_kv_shared_layers", 0):
        raise ValueError(f"layers of {name} share keys and values")
    if "position_ids" not in inspect.signature(model.forward).parameters:
        raise ValueError(f"{name} takes no position_ids, so the positions of tokens cannot be set")
    layers, window = text.num_hidden_layers, getattr(text, "sliding_window", None)
    kinds = getattr(text, "layer_types", None)
    if kinds is None:
        chunked = getattr(text, "attention_chunk_size", None)
        kinds = ["full_attention" if window is None else "sliding_attention"] * layers if not chunked else ["chunked"]
    other = sorted(set(kinds) - {"full_attention", "sliding_attention"})
    if other:
        raise ValueError(f"{name} has layers of {', '.join(other)}: only full and sliding attention can be filtered")
    windows = tuple(window if kind == "sliding_attention" else None for kind in kinds)
    heads = text.num_attention_heads
    return Shape(layers, heads, getattr(text, "num_key_value_heads", None) or heads, windows)


@dataclass(frozen=True)
class Held:
    """A model whose attention is intercepted, its modules, and the arguments that its `forward` takes.

    `mlp` is the feed-forward network of the last layer, None if it has another name.
    """

    model: Any
    shape: Shape
    modules: frozenset[int]
    takes: frozenset[str]
    mlp: Any


@contextmanager
def held(model: Any) -> Iterator[Held]:
    """In this block passes of `model` may have a listener. Nested blocks of one model cost nothing.

    Without a listener, in other threads, and for other models, whatever they share, attention does not change. At the
    end, also after an exception, the model's setting is restored.
    """
    around = _holding.get()
    if around is not None and around.model is model:
        yield around
        return
    _register()
    takes = frozenset(inspect.signature(model.forward).parameters)
    shape = shape_of(model)
    found = Held(model, shape, frozenset(map(id, model.modules())), takes, _last_mlp(model, shape.layers))
    with _renamed(model), _set(_holding, found):
        yield found


def passed(
    model: Any,
    listener: Listener,
    ids: Tensor,
    real: Tensor,
    positions: Tensor,
    last: int | None,
    *,
    last_only: bool = False,
) -> Tensor:
    """Logits (B, last, vocabulary) of the last columns. With `last` None, a pass that ends with `Enough`.

    Each call of attention goes to `listener`, which returns what attention returns. ids, real and positions (B, q):
    `real` is False at padding, on the left. The model's own cache is off, and without `last` no logits are computed.
    With `last_only` the last layer's attention and feed-forward network are computed in the last column alone, which
    changes the logits by rounding.
    Raises ValueError if the attention of a layer was not intercepted.
    """
    given = {"input_ids": ids, "attention_mask": real.long(), "position_ids": positions, "use_cache": False}
    heard: list[int] = []
    logits, expected = torch.empty(len(ids), 0, 0), None
    with torch.no_grad(), held(model) as found, ExitStack() as inside:

        def counting(call: Call) -> Any:
            heard.append(call.layer)
            return listener(replace(call, last_only=last_only and call.layer == found.shape.layers - 1))

        inside.enter_context(_set(_listening, (found, counting)))
        if last_only and found.mlp is not None:
            inside.enter_context(_last_column(found.mlp))
        if last is None:
            try:
                model.base_model(**given)
            except Enough:
                expected = len(heard)
        else:
            logits = model(**given, **({"logits_to_keep": last} if "logits_to_keep" in found.takes else {})).logits
            logits, expected = logits[:, -last:], found.shape.layers
    if expected is None or heard != list(range(expected)):
        raise ValueError(
            f"only {heard} of the {found.shape.layers} layers of {type(model).__name__} called attention through "
            "transformers"
        )
    return logits


_holding: ContextVar[Held | None] = ContextVar("holding", default=None)
_listening: ContextVar[tuple[Held, Listener] | None] = ContextVar("listening", default=None)


@contextmanager
def _set(variable: ContextVar[Any], value: Any) -> Iterator[None]:
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


_trimming: ContextVar[bool] = ContextVar("trimming", default=False)


@contextmanager
def _last_column(mlp: Any) -> Iterator[None]:
    """In this block and thread `mlp` reads its input's last column alone, and the result stands in every column.

    Where its input is not one tensor (B, n, d), or its result none of that shape, it reads everything.
    """
    whole: list[Tensor] = []

    def before(_: Any, given: tuple[Any, ...]) -> Any:
        if not _trimming.get() or len(given) != 1 or given[0].ndim != 3:
            return None
        whole[:] = given
        return (given[0][:, -1:],)

    def after(_: Any, __: Any, found: Any) -> Any:
        if not whole:
            return None
        wide = whole.pop()
        first, *rest = found if isinstance(found, tuple) else (found,)
        if first.shape == wide[:, -1:].shape:
            first = first.expand_as(wide)
            return (first, *rest) if isinstance(found, tuple) else first
        with _set(_trimming, False):
            return mlp(wide)

    with _set(_trimming, True):
        handles = mlp.register_forward_pre_hook(before), mlp.register_forward_hook(after)
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


def _last_mlp(model: Any, layers: int) -> Any:
    for module in model.modules():
        if any(getattr(child, "layer_idx", None) == layers - 1 for child in module.children()):
            return getattr(module, "mlp", None)
    return None


_lock = threading.Lock()
_users: dict[int, tuple[int, str]] = {}  # by configuration: how many listen, and its setting before the first


@contextmanager
def _renamed(model: Any) -> Iterator[None]:
    key = id(model.config)
    with _lock:
        count, before = _users.get(key, (0, model.config._attn_implementation))
        if not count:
            model.set_attn_implementation(PREFIX + before)
        _users[key] = count + 1, before
    try:
        yield
    finally:
        with _lock:
            count, before = _users.pop(key)
            if count > 1:
                _users[key] = count - 1, before
            else:
                model.set_attn_implementation(before)


def _register() -> None:
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

    with _lock:
        for base in BASES:
            if PREFIX + base not in AttentionInterface._global_mapping:
                AttentionMaskInterface.register(PREFIX + base, ALL_MASK_ATTENTION_FUNCTIONS[base])
                AttentionInterface.register(PREFIX + base, _heard(base))


def _heard(base: str) -> Callable[..., Any]:
    def attention(
        module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
    ) -> Any:
        own, found = _own(module, base), _listening.get()
        if found is None or id(module) not in found[0].modules:
            return own(module, query, key, value, attention_mask, **options)

        def run(call: Call) -> Any:
            mask = call.mask
            if mask is not None and mask.dtype == torch.bool and base == "eager":
                unseen = torch.finfo(call.query.dtype).min
                mask = torch.zeros((), dtype=call.query.dtype, device=mask.device).masked_fill(~mask, unseen)
            return own(module, call.query, call.key, call.value, mask, **options)

        if getattr(module, "is_causal", True) is False:
            raise ValueError(f"{type(module).__name__} is not causal: its tokens attend to later ones")
        of, listener = found
        layer, scaling = module.layer_idx, options.get("scaling")
        scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
        bent: dict[str, Any] = {"softcap": options.get("softcap"), "sinks": options.get("s_aux")}
        window = of.shape.windows[layer]
        return listener(Call(layer, query, key, value, attention_mask, scaling, window, **bent, run=run))

    return attention


def _own(module: Any, base: str) -> Callable[..., Any]:
    """The attention that `module` would use under the name `base`: "eager" of its own file, or one known to all."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    for kind in type(module).__mro__:
        file = sys.modules[kind.__module__]
        eager = getattr(file, "eager_attention_forward", None)
        if eager is not None:
            known = getattr(file, "ALL_ATTENTION_FUNCTIONS", ALL_ATTENTION_FUNCTIONS)
            found: Callable[..., Any] = known.get_interface(base, eager)
            return found
    raise ValueError(f"{type(module).__name__} has no eager attention")
