"""Announce the cost of a long measurement before it starts, and show its progress."""

import sys
import time
from collections.abc import Callable

import torch
from torch import nn
from tqdm import tqdm

from featurelab.modules.measures.core.samples import Samples

STEPS = 10  # announce a measurement that takes longer than so many training steps,
SECONDS = 0.5  # and longer than this


class Cost:
    """Listens to a measurement: announces its cost once, and shows a progress bar on a terminal.

    `step` returns the seconds of a training step, and `tell` receives the line.
    """

    def __init__(self, name: str, step: Callable[[], float], tell: Callable[[str], None], *, hint: str = "") -> None:
        self.name, self.step, self.tell, self.hint = name, step, tell, hint
        self.begun, self.bar, self.told = time.perf_counter(), None, False

    def __call__(self, done: int, total: int) -> None:
        now = time.perf_counter()
        if done == 0:
            self.close()
            self.begun = now
            return
        if done >= total:
            self.close()
            return
        expected = (now - self.begun) * total / done
        if expected <= SECONDS:
            return
        if not self.told:
            step = self.step()
            if expected <= STEPS * step:
                return
            self.told = True
            self.tell(
                f"{self.name}: a measurement takes about {_seconds(expected)}, as long as "
                f"{expected / max(step, 1e-9):,.0f} training steps{self.hint}"
            )
        if self.bar is None and sys.stderr.isatty():
            self.bar = tqdm(total=total, desc=self.name, leave=False, unit="", file=sys.stderr)
        if self.bar is not None:
            self.bar.update(done - self.bar.n)

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()
            self.bar = None


class StepClock:
    """Measures the seconds of a training step: the shortest step, without the time of probes."""

    measuring = 0.0  # seconds that all probes of this process have measured

    def __init__(self) -> None:
        self.seconds = float("inf")
        self._begun: tuple[float, float, int] | None = None

    def begin(self, step: int) -> None:
        self._begun = time.perf_counter(), StepClock.measuring, step

    def end(self, step: int) -> None:
        if self._begun is not None and step > self._begun[2]:
            begun, measuring, first = self._begun
            spent = time.perf_counter() - begun - (StepClock.measuring - measuring)
            self.seconds = min(self.seconds, spent / (step - first))

    def known_or_tried(self, module: nn.Module, samples: Samples) -> float:
        """Seconds of a step; before the first step, those of a trial forward and backward pass."""
        if self.seconds == float("inf"):
            begun = time.perf_counter()
            with torch.enable_grad():
                loss = samples.outputs(module).sum()
                weights = [weight for weight in module.parameters() if weight.requires_grad]
                if weights and loss.requires_grad:
                    torch.autograd.grad(loss, weights, allow_unused=True)
            if samples.device.type == "cuda":
                torch.cuda.synchronize(samples.device)
            self.seconds = time.perf_counter() - begun
        return self.seconds


def _seconds(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
