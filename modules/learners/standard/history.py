"""What is remembered of each step, in memory that does not grow step by step."""

import torch
from jaxtyping import Float
from torch import Tensor

ROOM = 1024  # steps for which there is room at first


class History:
    """Numbers of steps, appended batch by batch, in one tensor on the CPU that doubles whenever it is full.

    One small tensor a batch would lie between the large ones that come and go, and glibc before 2.38 then cannot use
    their room again: a convolutional network's training took gigabytes more from minute to minute.
    """

    def __init__(self, values: Float[Tensor, " steps"] | None = None) -> None:
        self._room = torch.empty(0) if values is None else values
        self._steps = len(self._room)

    @property
    def values(self) -> Float[Tensor, " steps"]:
        """The numbers so far; a view, whose numbers stay as they are when others are appended."""
        return self._room[: self._steps]

    def append(self, values: Float[Tensor, " some"]) -> None:
        steps = self._steps + len(values)
        if steps > len(self._room):
            larger = torch.empty(max(2 * steps, ROOM), dtype=values.dtype)
            larger[: self._steps] = self.values
            self._room = larger
        self._room[self._steps : steps] = values
        self._steps = steps
