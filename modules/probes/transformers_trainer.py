"""Probes in the Trainer of `transformers`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .precision import Logs

if TYPE_CHECKING:
    import transformers

    from .probe import Probe

NOT_INPUTS = ("num_items_in_batch",)  # what the Trainer passes to the network beside the batch


def trainer_callback(*probes: Probe, recorder: Logs | None = None) -> transformers.TrainerCallback:
    """Return a callback for `transformers.Trainer` that measures with these probes.

    They measure before the first step, whenever they are due, and at the end of training, on their own data or on the
    first training batch. In distributed training the first process measures. Values are in `history` of each probe, and
    go to `recorder.log(values, step=...)` if one is given.

    Raises ImportError without `transformers`, whose Trainer also needs `accelerate`.
    """
    from transformers import TrainerCallback

    class Measuring(TrainerCallback):
        """Measures as the Trainer trains."""

        def __init__(self) -> None:
            self.batch: Any = None
            self.hook: Any = None

        def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            if state.is_world_process_zero:
                net = given["model"]
                self.hook = net.register_forward_pre_hook(self.on_first_batch, with_kwargs=True)
                self.step = state.global_step

        def on_first_batch(self, net: Any, positional: Any, batch: dict[str, Any]) -> None:
            self.hook.remove()
            self.batch = positional[0] if positional else {k: v for k, v in batch.items() if k not in NOT_INPUTS}
            for probe in probes:
                probe.measure(net, self.batch, self.step, recorder=recorder)

        def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            self.take("step", state, given["model"])

        def on_epoch_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            self.take("epoch", state, given["model"])

        def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            self.take("end", state, given["model"])
            if self.hook is not None:
                self.hook.remove()

        def take(self, kind: Any, state: Any, net: Any) -> None:
            for probe in probes if self.batch is not None else ():
                # the Trainer has counted an epoch when it ends, Lightning has not
                if probe.due_at(kind, state.global_step, round(state.epoch or 0) - 1):
                    probe.measure(net, self.batch, state.global_step, recorder=recorder)

    return Measuring()
