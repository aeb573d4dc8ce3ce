from __future__ import annotations

import math
import os

import numpy as np
import pytest

from featurelab.tracking.outbox.null import NullRecorder
from featurelab.tracking.outbox.record import Diverged


@pytest.mark.parametrize("name", ["", "a//b", "/a", "a/", "../a", "a/./b", "a=b", "a\n", "x" * 231, 3])
def test_a_name_that_mlflow_would_refuse_is_refused_when_recorded(name):
    with pytest.raises(ValueError, match="cannot be the name"):
        NullRecorder().log({name: 1.0}, 0)


def test_the_null_recorder_checks_everything_and_stores_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with NullRecorder() as recorder:
        recorder.log({"nfa/0": math.inf}, 0)
        recorder.array("a", x=np.ones(1))
        recorder.dataset("chain", "abc", {})
        with pytest.raises(TypeError):
            recorder.log({"nfa/0": "x"}, 0)
        with pytest.raises(Diverged):
            recorder.log({"loss/train": math.nan}, 1)
        assert recorder.flush()
    assert os.listdir(tmp_path) == []
