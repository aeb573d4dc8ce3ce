"""What the covariance of the tangent features of all layers costs, next to the usual alternatives.

K = (1/n) J^T J of every linear and convolutional layer, in float32, of an MLP (five hidden layers of width 256), a
ResNet-18 (16 to 128 channels) and a transformer encoder (four layers of width 256, 64 positions); ten outputs each:

    featurelab     measures.tangent_covariance
    vmap(jacrev)   torch.func over samples, differentiating with respect to shifts of the pre-activations; of the MLP
                   also written out as matrix times vector
    output loop    one autograd.grad for each output over all samples, with its J^T J at once

Peak memory is that of a new process for each method, less its memory before. `kept_loop_peak_mib` is that of a loop
that keeps the J of all outputs before it multiplies.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from benchmarks._rows import OURS, Row, Size, alternate, compare
from benchmarks.mathematics._layers import forward
from featurelab.modules import measures, nets

ROOT = Path(__file__).resolve().parents[2]
VMAP, WRITTEN, LOOP, KEPT = "vmap(jacrev)", "vmap(jacrev), written out", "output loop", "output loop, J kept"


class Problem(NamedTuple):
    """A network, the shape of a sample, samples, repeats, and samples at a time for vmap (None: all)."""

    net: Callable[[Size], nn.Module]
    sample: tuple[int, ...]
    samples: dict[Size, int]
    repeats: dict[Size, int]
    chunk: int | None = None
    what: str = ""

    def made(self, size: Size, samples: int | None = None) -> tuple[nn.Module, Tensor]:
        n = samples or self.samples[size]
        return self.net(size), torch.randn(n, *self.sample, generator=torch.Generator().manual_seed(0))


class Encoder(nn.Module):
    def __init__(self, layers: int) -> None:
        super().__init__()
        block = nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
        self.head = nn.Linear(256, 10)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.head(self.encoder(x).mean(1))
        return outputs


def mlp(size: Size) -> nn.Module:
    return nets.mlp(256, 256, 5 if size == "full" else 1, outputs=10, seed=0, dtype="float32")


def resnet(size: Size) -> nn.Module:
    widths = (16, 32, 64, 128) if size == "full" else (4, 4, 4, 4)
    return nets.resnet(10, widths=widths, seed=0, dtype="float32").eval()


def encoder(size: Size) -> nn.Module:
    torch.manual_seed(0)
    return Encoder(4 if size == "full" else 1).eval()


PROBLEMS = {
    "mlp": Problem(mlp, (256,), {"full": 2000, "tiny": 20}, {"full": 5, "tiny": 1}, what="MLP, 5 hidden layers of 256"),
    "resnet18": Problem(
        resnet, (3, 32, 32), {"full": 256, "tiny": 3}, {"full": 2, "tiny": 1}, chunk=8, what="ResNet-18, 16 wide"
    ),
    "encoder": Problem(
        encoder, (64, 256), {"full": 32, "tiny": 2}, {"full": 2, "tiny": 1}, what="encoder, d 256, 4 layers, T 64"
    ),
}


def featurelab(net: nn.Module, x: Tensor, problem: Problem) -> list[Tensor]:
    return [layer.K for layer in measures.tangent_covariance(net, x).values()]


def vmap_jacrev(net: nn.Module, x: Tensor, problem: Problem) -> list[Tensor]:
    shapes = dict[str, torch.Size]()

    def note(name: str, _: nn.Module, args: tuple[Tensor, ...], h: Tensor) -> None:
        shapes[name] = h.shape[1:]

    layers = measures.layer_names(net)
    with torch.no_grad():
        handles = [layer.register_forward_hook(partial(note, name)) for name, layer in layers.items()]
        net(x[:1])
    for handle in handles:
        handle.remove()

    def shifted(shifts: dict[str, Tensor], sample: Tensor) -> Tensor:
        handles = [
            layers[name].register_forward_hook(lambda _, args, h, name=name: h + shifts[name]) for name in shifts
        ]
        try:
            outputs: Tensor = net(sample[None])[0]
        finally:
            for handle in handles:
                handle.remove()
        return outputs

    zeros = {name: x.new_zeros(shape) for name, shape in shapes.items()}
    jacobians = torch.func.vmap(torch.func.jacrev(shifted), in_dims=(None, 0))
    total: list[Tensor] = []
    for part in x.split(problem.chunk or len(x)):
        some = [gram(layers[name], J.flatten(0, 1)) / len(x) for name, J in jacobians(zeros, part).items()]
        total = some if not total else [K + other for K, other in zip(total, some, strict=True)]
    return total


def written_out(net: nn.Module, x: Tensor, problem: Problem) -> list[Tensor]:
    """`vmap_jacrev` of an MLP without modules."""
    weights = [layer.weight.detach() for layer in measures.layer_names(net).values()]

    def shifted(shifts: list[Tensor], sample: Tensor) -> Tensor:
        h = weights[0] @ sample + shifts[0]
        for W, shift in zip(weights[1:], shifts[1:], strict=True):
            h = W @ torch.relu(h) + shift
        return h

    J = torch.func.vmap(torch.func.jacrev(shifted), in_dims=(None, 0))([x.new_zeros(len(W)) for W in weights], x)
    return [gram(net, j) / len(x) for j in J]


def output_loop(net: nn.Module, x: Tensor, problem: Problem, *, keep: bool = False) -> list[Tensor]:
    (outputs, calls), layers = forward(net, lambda: net(x)), measures.layer_names(net)
    wanted = [layers[name] for name in calls]
    passes = (torch.autograd.grad(outputs[:, c].sum(), [*calls.values()], retain_graph=True) for c in range(10))
    if keep:
        return [gram(layer, torch.cat(J)) / len(x) for layer, J in zip(wanted, zip(*passes, strict=True), strict=True)]
    total: list[Tensor] = []
    for rows in passes:
        of_one = [gram(layer, J) / len(x) for layer, J in zip(wanted, rows, strict=True)]
        total = of_one if not total else [K + other for K, other in zip(total, of_one, strict=True)]
    return total


def gram(layer: nn.Module, J: Tensor) -> Tensor:
    if isinstance(layer, nn.Conv2d):
        J = J.movedim(1, -1)
    J = J.reshape(-1, J.shape[-1])
    return J.T @ J


METHODS: dict[str, Callable[[nn.Module, Tensor, Problem], list[Tensor]]] = {
    OURS: featurelab,
    VMAP: vmap_jacrev,
    WRITTEN: written_out,
    LOOP: output_loop,
    KEPT: partial(output_loop, keep=True),
}


def own_peak_mib(method: str, name: str, size: Size) -> float:
    """The peak memory of one call, less that of the process with data and network before."""
    problem = PROBLEMS[name]
    net, x = problem.made(size)
    METHODS[method](*problem.made(size, 2), problem)  # loads code and libraries
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    METHODS[method](net, x, problem)
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


def peak_mib(method: str, name: str, size: Size) -> float:
    """`own_peak_mib` in a new process, started by a small one: a child's peak begins at that of its parent."""
    call = f"own_peak_mib({method!r}, {name!r}, {size!r})"
    code = f"from benchmarks.mathematics.tangent_features import own_peak_mib; print({call})"
    start = f"import subprocess, sys; sys.exit(subprocess.run([sys.executable, '-c', {code!r}]).returncode)"
    done = subprocess.run([sys.executable, "-c", start], cwd=ROOT, check=True, capture_output=True, text=True)
    return float(done.stdout)


def rows(size: Size) -> list[Row]:
    return [row for name in PROBLEMS for row in measured(size, name)]


def measured(size: Size, name: str) -> list[Row]:
    problem, timed = PROBLEMS[name], (OURS, VMAP, LOOP, *[WRITTEN] * (name == "mlp"))
    peaks = {
        f"{label}_mib": peak_mib(method, name, size)
        for label, method in (("peak", OURS), ("loop_peak", LOOP), ("kept_loop_peak", KEPT))
        if size == "full"
    }
    net, x = problem.made(size)
    few = problem.made(size, min(len(x), 8))
    expected = featurelab(*few, problem)
    for method in (*timed, KEPT):
        for mine, theirs in zip(expected, METHODS[method](*few, problem), strict=True):
            if (mine - theirs).norm() > 1e-4 * theirs.norm():
                raise SystemExit(f"{method} disagrees with featurelab on {name}")
    lines = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        calls = {method: partial(METHODS[method], net, x, problem) for method in timed}
        taken = alternate(calls, problem.repeats[size], warm=name == "mlp")
        what = f"K of all layers, {problem.what}, n = {len(x):,}, float32, {threads} thread{'s' * (threads > 1)}"
        lines += compare(f"{name}/{threads}", what, taken, numbers=peaks if threads == 2 else None)
    return lines
