"""Classification on the sphere, as a baseline of deep metric learning."""

from __future__ import annotations

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from featurelab.modules.dtypes import Dtype, dtype_name


class NormSoftmax(nn.Linear):
    """Logits  <F / |F|, p_c / |p_c|> / temperature  of features F and class weights p_c.

    With cross-entropy this is the normalised softmax loss of Zhai and Wu, "Classification is a strong baseline for
    deep metric learning" (BMVC 2019), equation 2; each logit lies in [-1/temperature, 1/temperature]. No bias. The
    weights start N(0, 1 / dim), drawn in float64 from a generator of `seed`; their length does not matter.
    Raises ValueError for a temperature that is not positive.
    """

    def __init__(
        self, dim: int, classes: int, *, temperature: float = 0.05, seed: int, dtype: Dtype = "float32"
    ) -> None:
        if not temperature > 0:
            raise ValueError(f"temperature must be positive, got {temperature}")
        super().__init__(dim, classes, bias=False, device="meta")
        self.temperature = temperature
        generator = torch.Generator().manual_seed(seed)
        drawn = torch.randn(classes, dim, generator=generator, dtype=torch.float64) / dim**0.5
        self.weight = nn.Parameter(drawn.to(getattr(torch, dtype_name(dtype))))

    def forward(self, features: Float[Tensor, "*n dim"]) -> Float[Tensor, "*n classes"]:
        unit, weights = (nn.functional.normalize(v, dim=-1) for v in (features, self.weight))
        return nn.functional.linear(unit, weights) / self.temperature


class MetricNet(nn.Module):
    """Features F = LayerNorm(trunk(x)) without an affine map, and a `NormSoftmax` head on them.

    Every feature vector has length sqrt(dim) (up to LayerNorm's epsilon) and entries of mean 0, so inner products lie
    in [-dim, dim]. `features(x)` is the embedding that retrieval compares; forward returns the logits of `head`. Zhai
    and Wu (BMVC 2019), section 3.
    """

    def __init__(
        self,
        trunk: nn.Module,
        dim: int,
        classes: int,
        *,
        temperature: float = 0.05,
        seed: int,
        dtype: Dtype = "float32",
    ) -> None:
        super().__init__()
        self.trunk = trunk
        self.norm = nn.LayerNorm(dim, elementwise_affine=False)
        self.head = NormSoftmax(dim, classes, temperature=temperature, seed=seed, dtype=dtype)

    def features(self, x: Shaped[Tensor, "n ..."]) -> Float[Tensor, "n dim"]:
        features: Tensor = self.norm(self.trunk(x))
        return features

    def forward(self, x: Shaped[Tensor, "n ..."]) -> Float[Tensor, "n classes"]:
        outputs: Tensor = self.head(self.features(x))
        return outputs
