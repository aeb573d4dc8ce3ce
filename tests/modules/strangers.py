"""A network that nobody here wrote for, and its tangent features by slow loops."""

import torch
from torch import nn
from torch.nn import functional as F


def draw(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


class Stranger(nn.Module):
    """Convolutions, in-place activations, a skip connection, pooling, normalisation, a grouped layer, tokens,
    biases."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.stem = nn.Conv2d(2, 4, 3, stride=2, padding=1)
        self.block = nn.Sequential(
            nn.Conv2d(4, 4, (3, 1), padding=(1, 0), padding_mode="circular"), nn.ReLU(inplace=True)
        )
        self.depthwise = nn.Conv2d(4, 4, 3, groups=4)
        self.norm = nn.BatchNorm2d(4)
        self.tokens = nn.Linear(4, 5)
        self.layernorm = nn.LayerNorm(5)
        self.head = nn.Linear(5, 3)
        self.double().eval()

    def forward(self, x):
        h = F.relu(self.stem(x), inplace=True)
        h = h + self.block(h)
        h = F.max_pool2d(F.gelu(self.norm(self.depthwise(h))), 2)
        h = self.layernorm(self.tokens(h.flatten(2).transpose(1, 2)))
        return self.head(torch.tanh(h).mean(1))


def site_gradients(module, layer, inputs):
    """Slowly: for each sample, output and position, (input of the layer there, d output / d pre-activation there)."""
    rows = []
    for x in inputs:
        captured = []

        def shift(_, args, h, captured=captured):
            delta = torch.zeros_like(h, requires_grad=True)
            captured.append((args[0].detach(), delta))
            return h + delta

        handle = layer.register_forward_hook(shift)
        outputs = module(x[None]).flatten()
        handle.remove()
        for output in outputs:
            gradients = torch.autograd.grad(output, [delta for _, delta in captured], retain_graph=True)
            for (z, _), g in zip(captured, gradients, strict=True):
                rows.append((z, g))
    return rows


def slow_covariance(module, layer, inputs):
    total = 0
    for _, g in site_gradients(module, layer, inputs):
        J = g[0].flatten(1).T if isinstance(layer, nn.Conv2d) else g.reshape(-1, g.shape[-1])
        for row in J:
            total = total + torch.outer(row, row)
    return total / len(inputs)
