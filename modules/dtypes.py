"""Dtypes, which options take by name, as settings write them, or as they are."""

import torch

Dtype = str | torch.dtype


def dtype_name(dtype: Dtype) -> str:
    """What torch calls it, such as "float32"."""
    return str(dtype).removeprefix("torch.") if isinstance(dtype, torch.dtype) else dtype
