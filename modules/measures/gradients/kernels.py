"""Tangent kernels of a network: of its pre-activations (PTK) and of its parameters (NTK).

    Theta_l = PTK_l o (X_l X_l^T)      (o: elementwise)

for a linear layer with inputs X_l (Beaglehole, Mitliagkas, Agarwala 2024, arXiv:2402.05271, proposition 3).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch.func import functional_call, jacrev, vmap

from ..core.compiled import as_written
from ..core.layers import layer_names
from ..core.passes import prepared
from .derivatives import layer_inputs, tangent_features


def ptk(J: Float[Tensor, "n outputs ..."]) -> Float[Tensor, "n n"]:
    """Pre-activation tangent kernel J J^T of tangent features J: (n, n), PSD.

    Summed over outputs, units and positions. With one output and one position it has the non-zero spectrum of n K, K
    the covariance of the tangent features.
    """
    J = J.flatten(1)
    return J @ J.T


def layer_ntk(
    module: nn.Module, inputs: Shaped[Tensor, "n ..."], *, layers: Sequence[str] | None = None, chunk: int | None = None
) -> dict[str, Float[Tensor, "n n"]]:
    """Empirical NTK of each linear layer's weights, Theta_l[a, b] = sum_c <df_c(a)/dW_l, df_c(b)/dW_l>: (n, n), PSD.

    Computed as PTK_l o (X_l X_l^T); biases are not included. `layers` defaults to all linear layers.

    Raises ValueError as `tangent_features`, and for a layer that is not linear or is applied at several positions: the
    product form does not hold there, but `ntk` does.
    """
    known = layer_names(module)
    if layers is None:
        layers = [name for name, layer in known.items() if isinstance(layer, nn.Linear)]
    for name in layers:
        if name in known and not isinstance(known[name], nn.Linear):
            raise ValueError(f"layer {name!r} is a {type(known[name]).__name__}, not linear: use ntk(module, inputs)")
    J = tangent_features(module, inputs, layers=layers, chunk=chunk)
    X = layer_inputs(module, inputs, layers=layers, chunk=chunk)
    for name, x in X.items():
        if x.ndim != 2:
            raise ValueError(
                f"layer {name!r} is applied at several positions, {tuple(x.shape)}: use ntk(module, inputs)"
            )
    return {name: ptk(J[name]) * (X[name] @ X[name].T) for name in layers}


@as_written
@torch.inference_mode(False)
def ntk(
    module: nn.Module,
    inputs: Shaped[Tensor, "n ..."],
    *,
    parameters: Sequence[str] | None = None,
    chunk: int | None = None,
) -> Float[Tensor, "n n"]:
    """Empirical NTK sum_c sum_theta <df_c(a)/dtheta, df_c(b)/dtheta> of any module by autograd: (n, n), PSD.

    Summed over outputs, not divided by their number. `parameters` are names of `module.named_parameters()` (default:
    all). Holds n * outputs * (number of parameters) numbers, so use it for small networks and for checks; `chunk`
    samples are differentiated at a time. Raises ValueError for an unknown parameter and for BatchNorm with batch
    statistics.
    """
    rows = prepared(module, inputs, chunk).inputs
    state = {name: tensor.detach() for name, tensor in [*module.named_parameters(), *module.named_buffers()]}
    trained = dict(module.named_parameters())
    names = list(trained) if parameters is None else list(parameters)
    if unknown := [name for name in names if name not in trained]:
        raise ValueError(f"no parameter {unknown[0]!r} (of {', '.join(trained)})")

    def outputs_of(theta: dict[str, Tensor], x: Tensor) -> Tensor:
        outputs: Tensor = functional_call(module, {**state, **theta}, (x[None],))
        return outputs.flatten()

    theta = {name: state[name] for name in names}
    gradients = vmap(jacrev(outputs_of), in_dims=(None, 0), chunk_size=chunk)(theta, rows)
    return torch.stack([ptk(gradient) for gradient in gradients.values()]).sum(0)
