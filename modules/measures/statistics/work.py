"""Cost of a piece of code: seconds, operations of matrix products, and the peak memory of tensors."""

import time
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count


class MeasuredCost(NamedTuple):
    """Seconds, and bytes allocated at the peak, with those allocated before (None if nothing counts them)."""

    seconds: float
    peak_bytes: int | None


def measured_cost(run: Callable[[], Any], device: torch.device | str = "cpu") -> MeasuredCost:
    """Time and memory of one call `run()`: by the clock and allocator of a GPU, elsewhere by processor time.

    Processor time adds up over threads and does not depend on other processes of the machine.
    """
    if torch.device(device).type != "cuda":
        begin = time.process_time()
        run()
        return MeasuredCost(time.process_time() - begin, None)
    begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    begun.record()
    run()
    ended.record()
    torch.cuda.synchronize(device)
    return MeasuredCost(begun.elapsed_time(ended) / 1e3, torch.cuda.max_memory_allocated(device))


class Work(NamedTuple):
    """Operations of matrix products, the part of attention among them, and bytes of new tensors at the peak."""

    flops: int
    attention_flops: int
    peak_bytes: int


def counted_work(run: Callable[[], Any]) -> Work:
    """Count the work of one call `run()`, on any device.

    A product of (a, b) and (b, c) has 2abc operations, also where a causal mask hides a part of it; other operations
    are not counted. Bytes are those of tensors that did not exist before, each for as long as it is reachable,
    including what `run` returns. Memory that a kernel allocates and frees inside itself is not seen.
    """
    flops = FlopCounterMode(display=False, custom_mapping=FUSED_ATTENTION)
    memory = _Allocated()
    with memory, flops:
        returned = run()
    del returned
    by_kernel = flops.get_flop_counts().get("Global", {})
    attention = sum(count for kernel, count in by_kernel.items() if "attention" in str(kernel))
    return Work(int(flops.get_total_flops()), int(attention), memory.peak)


def _fused_attention(query: Any, key: Any, value: Any, *rest: Any, out_shape: Any = None, **options: Any) -> int:
    shapes = [shape.shape if isinstance(shape, Tensor) else shape for shape in (query, key, value)]
    heads = shapes[0][1]  # keys and values may have fewer: each is read by a group of heads
    query, key, value = (torch.Size((shape[0], heads, *shape[2:])) for shape in shapes)
    return int(sdpa_flop_count(query, key, value))


# torch counts those of GPUs itself, but some versions refuse them where keys have fewer heads than queries
_KERNELS = ("flash_attention_for_cpu", "flash_attention", "efficient_attention", "cudnn_attention")
FUSED_ATTENTION = {getattr(torch.ops.aten, f"_scaled_dot_product_{name}"): _fused_attention for name in _KERNELS}


class _Allocated(TorchDispatchMode):
    """Tracks the storages of the tensors that operations return, from their first appearance until they are freed."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._seen: dict[int, int] = {}  # bytes by storage; 0 for those that existed before

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for tensor in tree_iter((args, kwargs)):
            self._note(tensor, new=False)
        result = func(*args, **(kwargs or {}))
        for tensor in tree_iter(result):
            self._note(tensor, new=True)
        self.peak = max(self.peak, self.now)
        return result

    def _note(self, tensor: Any, *, new: bool) -> None:
        if not isinstance(tensor, Tensor):
            return
        storage = tensor.untyped_storage()
        if storage._cdata not in self._seen:
            self._seen[storage._cdata] = storage.nbytes() if new else 0
            self.now += self._seen[storage._cdata]
            weakref.finalize(storage, self._forget, storage._cdata)

    def _forget(self, key: int) -> None:
        self.now -= self._seen.pop(key, 0)
