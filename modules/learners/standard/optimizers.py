"""Optimisers as factories `net -> Optimizer`."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import nn

Factory = Callable[[nn.Module], torch.optim.Optimizer]


def gd(lr: float, weight_decay: float = 0.0) -> Factory:
    """Gradient descent W <- W - lr (g + weight_decay W)."""
    return partial(_over_parameters, torch.optim.SGD, lr=lr, weight_decay=weight_decay)


def sgd(lr: float, momentum: float = 0.0, weight_decay: float = 0.0) -> Factory:
    """Gradient descent with momentum: v <- momentum v + g + weight_decay W, W <- W - lr v, starting from v = 0."""
    return partial(_over_parameters, torch.optim.SGD, lr=lr, momentum=momentum, weight_decay=weight_decay)


def adam(lr: float, weight_decay: float = 0.0) -> Factory:
    """Adam with torch's defaults; weight decay is added to the gradient."""
    return partial(_over_parameters, torch.optim.Adam, lr=lr, weight_decay=weight_decay)


def adam_by_layer(lr: float, shares: Mapping[str, float], weight_decay: float = 0.0) -> Factory:
    """Adam with the rate lr * shares[name] for the parameters of each child module `name` of the network.

    A share of 0 leaves a layer out. The factory raises ValueError unless the shares name exactly the children of the
    network that have trainable parameters.
    """
    return partial(_by_layer, lr=lr, shares=dict(shares), weight_decay=weight_decay)


def with_bounded_parameter(optimizer: Factory, name: str, bound: float) -> Factory:
    """The optimiser, with the parameter `name` of the network clipped to [-bound, bound] after each of its steps.

    Raises ValueError unless bound > 0; the factory raises AttributeError if the network has no such parameter.
    """
    if not bound > 0:
        raise ValueError(f"bound must be positive, got {bound}")
    return partial(_within, optimizer, name, bound)


# Factories are partials of these, not closures, so that they can be sent to worker processes.
def _over_parameters(kind: type[torch.optim.Optimizer], net: nn.Module, **options: Any) -> torch.optim.Optimizer:
    return kind(net.parameters(), **options)


def _by_layer(net: nn.Module, *, lr: float, shares: dict[str, float], weight_decay: float) -> torch.optim.Optimizer:
    layers = {name: [p for p in child.parameters() if p.requires_grad] for name, child in net.named_children()}
    layers = {name: params for name, params in layers.items() if params}
    if set(layers) != set(shares):
        raise ValueError(f"shares must name the layers {', '.join(layers)}, got {', '.join(shares)}")
    groups = [{"params": params, "lr": lr * shares[name]} for name, params in layers.items() if shares[name]]
    return torch.optim.Adam(groups, lr=lr, weight_decay=weight_decay)


def _within(optimizer: Factory, name: str, bound: float, net: nn.Module) -> torch.optim.Optimizer:
    made, parameter = optimizer(net), net.get_parameter(name)

    def cut(*_: Any) -> None:
        if parameter.grad is not None:  # where updates are withheld, nothing is cut either
            parameter.data.clamp_(-bound, bound)

    made.register_step_post_hook(cut)
    return made
