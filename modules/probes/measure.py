"""Any function as a probe."""

from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal

from torch import Tensor, nn

from featurelab.modules.measures.core.samples import Outputs

from .batches import Data, Names
from .probe import Probe


class Measure(Probe):
    """Any function of (module, inputs) as a probe: `Measure(lambda module, x: module(x).std(), every=10)`.

    The function returns a number, logged as `name` (default: the name of the function), or numbers by name. Its inputs
    are as in the batch: a tensor, or a mapping for `module(**inputs)`. Further options are those of `Probe`.
    """

    def __init__(
        self,
        function: Callable[[Any, Any], Mapping[str, float] | float | Tensor],
        every: int = 1,
        *,
        name: str | None = None,
        on: Literal["step", "epoch"] = "step",
        at: Collection[int] = (),
        inputs: Data | Names | None = None,
        targets: Names | None = None,
        outputs: Outputs | None = None,
        data: Data | None = None,
        prefix: str = "",
        strict: bool | None = None,
    ) -> None:
        super().__init__(
            every=every,
            on=on,
            at=at,
            inputs=inputs,
            targets=targets,
            outputs=outputs,
            data=data,
            prefix=prefix,
            strict=strict,
        )
        self.function = function
        self.name: str = name or str(getattr(function, "__name__", type(function).__name__))

    def values(self, module: nn.Module, inputs: Any, targets: Any) -> Mapping[str, float]:
        value = self.function(module, inputs)
        if isinstance(value, Tensor):
            value = value.item()
        return value if isinstance(value, Mapping) else {self.name: value}

    @property
    def state_key(self) -> str:
        return self._generate_state_key(every=self.every, on=self.on, prefix=self.prefix, name=self.name)
