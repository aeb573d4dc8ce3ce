"""What a learner remembers of its steps."""

import gc

import pytest
import pytorch_lightning as pl
import torch
from hypothesis import given
from hypothesis import strategies as st

from featurelab.modules.data import TensorData
from featurelab.modules.learners import Supervised, gd
from featurelab.modules.learners.standard.history import ROOM, History
from featurelab.modules.nets import mlp

SIZES = st.integers(0, ROOM + 3)


def fitted(steps, **options):
    x = torch.randn(48, 8, generator=torch.Generator().manual_seed(0))
    module = Supervised(mlp(8, 12, 1, seed=0), optimizer=gd(0.01), **options)
    flags = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "accelerator": "cpu"}
    trainer = pl.Trainer(max_steps=steps, enable_model_summary=False, **flags)
    trainer.fit(module, TensorData((x, x[:, :1]), batch_size=16))
    return module


@given(SIZES, st.lists(SIZES, max_size=6), st.sampled_from([torch.float32, torch.float64]))
def test_what_was_appended_is_there_in_order(before, sizes, dtype):
    parts = [torch.arange(size, dtype=dtype) for size in [before, *sizes]]
    history = History(parts[0])
    seen = []
    for part in parts[1:]:
        history.append(part)
        seen.append((history.values, history.values.clone()))
    assert torch.equal(history.values, torch.cat(parts))
    assert all(torch.equal(view, copy) for view, copy in seen)


def test_a_checkpoint_holds_the_losses_without_the_room_for_more():
    checkpoint = {}
    fitted(3).on_save_checkpoint(checkpoint)
    history = checkpoint["loss_history"]
    assert history.untyped_storage().nbytes() == 3 * history.element_size()


@pytest.mark.parametrize("steps_per_batch", [1, 4])
def test_training_longer_leaves_no_more_tensors(steps_per_batch):
    def tensors(steps):
        module = fitted(steps, steps_per_batch=steps_per_batch)
        gc.collect()
        assert len(module.loss_history) == steps
        return sum(isinstance(each, torch.Tensor) for each in gc.get_objects())

    tensors(8)  # what is made once
    assert tensors(80) == tensors(16)
