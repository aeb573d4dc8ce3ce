"""Speed Limited Optimization, in which each layer moves at a speed of its own (arXiv:2402.05271, section 5)."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from featurelab.modules.measures import layer_names, nfa, tangent_covariance

from ..standard.optimizers import Factory


def speed_limited(lr: float, speeds: Sequence[float], eps: float, weight_decay: float = 0.0) -> Factory:
    """Speed Limited Optimization with one speed for each layer, in the order of the layers; see `SpeedLimited`.

    A layer is a module with parameters of its own; a bias moves with its weights. The factory raises ValueError if the
    network does not have as many layers as there are speeds.
    """
    return partial(_over_layers, tuple(speeds), lr=lr, eps=eps, weight_decay=weight_decay)


class SpeedLimited(torch.optim.Optimizer):
    """Speed Limited Optimization: W_l <- W_l - lr C_l g_l / (eps + |g_l|_F), |g_l|_F over all parameters of a layer.

    Each layer is a parameter group, with its speed C_l under the key "speed". A step moves a layer by less than lr C_l.
    Weight decay is added to g_l first, so the limit includes it. Section 5 of Beaglehole, Mitliagkas, Agarwala 2024,
    arXiv:2402.05271, which prints "+ lr" but means descent. Raises ValueError for a negative lr, speed or weight decay,
    or eps <= 0.
    """

    def __init__(
        self, layers: Sequence[dict[str, Any]], *, lr: float, eps: float, speed: float = 1.0, weight_decay: float = 0.0
    ) -> None:
        """`speed` is the default of groups without one."""
        super().__init__(layers, {"lr": lr, "eps": eps, "speed": speed, "weight_decay": weight_decay})
        for group in self.param_groups:
            for key in ("lr", "speed", "weight_decay"):
                if not group[key] >= 0:
                    raise ValueError(f"{key} must not be negative, got {group[key]}")
            if not group["eps"] > 0:
                raise ValueError(f"eps must be positive, got {group['eps']}: a zero gradient would divide by zero")

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        result = None
        if closure is not None:
            with torch.enable_grad():
                result = closure()
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            gradients = [_decayed(p, group["weight_decay"]) for p in params]
            if not params:
                continue
            norm = torch.nn.utils.get_total_norm(gradients)
            scale = group["lr"] * group["speed"] / (group["eps"] + norm)
            for param, gradient in zip(params, gradients, strict=True):
                param.addcmul_(gradient, scale, value=-1.0)
        return result


class AdaptiveSpeeds(pl.Callback):
    """Gives the highest speed to the layer whose weights are least aligned with its tangent features (fig. 12).

    Before a step, the hidden layer with the smallest current UC-NFA rho(W^T W, W^T K W), K on the training batch, gets
    the speed `high`; all other layers, the readout included, get 1 / high. Choices are renewed every `every` steps. The
    fit's optimiser must be a `SpeedLimited` with one layer in each group. `choices` lists (step, layer), and is kept in
    checkpoints.

    Raises TypeError for another optimiser, ValueError for a network without hidden layers.
    """

    logs_by_itself = True  # it logs nothing

    def __init__(self, high: float = 20.0, *, every: int = 1) -> None:
        if not high > 0 or every < 1:
            raise ValueError(f"high must be positive and every at least 1, got {high} and {every}")
        self.high = float(high)
        self.every = every
        self.choices: list[tuple[int, str]] = []
        self._inputs: Tensor | None = None

    def on_train_batch_start(self, trainer: pl.Trainer, module: pl.LightningModule, batch: Any, batch_idx: int) -> None:
        self._inputs = batch[0]

    def on_before_optimizer_step(
        self, trainer: pl.Trainer, module: pl.LightningModule, optimizer: torch.optim.Optimizer
    ) -> None:
        if not isinstance(optimizer, SpeedLimited):
            raise TypeError(f"AdaptiveSpeeds needs a SpeedLimited optimiser, got {type(optimizer).__name__}")
        if trainer.global_step % self.every:
            return
        layers = layer_names(module)
        hidden = list(layers)[:-1]
        if not hidden:
            raise ValueError("AdaptiveSpeeds chooses among hidden layers, but this network has none")
        assert self._inputs is not None
        covariances = tangent_covariance(module, self._inputs, layers=hidden)
        if trainer.world_size > 1:  # each worker sees a share of the batch, and K is a mean over samples
            for layer in covariances.values():
                torch.distributed.all_reduce(layer.K)
        scores = torch.stack([nfa(covariances[name].W, covariances[name].K) for name in hidden])
        lowest = hidden[int(scores.argmin())]
        chosen = layers[lowest].weight
        for group in optimizer.param_groups:
            holds = any(param is chosen for param in group["params"])
            group["speed"] = self.high if holds else 1.0 / self.high
        self.choices.append((trainer.global_step, lowest))

    def state_dict(self) -> dict[str, Any]:
        return {"choices": list(self.choices)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.choices = list(state_dict["choices"])


def _over_layers(speeds: Sequence[float], net: nn.Module, **options: Any) -> SpeedLimited:
    layers = _own_parameters(net)
    if len(layers) != len(speeds):
        raise ValueError(
            f"need one speed for each layer, got {len(speeds)} for {len(layers)} layers: {', '.join(layers)}"
        )
    groups = [
        {"params": params, "name": name, "speed": float(speed)}
        for (name, params), speed in zip(layers.items(), speeds, strict=True)
    ]
    return SpeedLimited(groups, **options)


def _decayed(param: Tensor, weight_decay: float) -> Tensor:
    assert param.grad is not None
    return param.grad.add(param, alpha=weight_decay) if weight_decay else param.grad


def _own_parameters(net: nn.Module) -> dict[str, list[nn.Parameter]]:
    """Trainable parameters that each module holds directly, by module name, each parameter once."""
    seen: set[int] = set()
    layers: dict[str, list[nn.Parameter]] = {}
    for name, module in net.named_modules():
        own = [p for p in module.parameters(recurse=False) if p.requires_grad and id(p) not in seen]
        seen.update(map(id, own))
        if own:
            layers[name] = own
    return layers
