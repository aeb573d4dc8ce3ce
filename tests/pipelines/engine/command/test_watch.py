"""The bar of a single trial says which number is what."""

import io
import re

import pytest
from rich.console import Console

from featurelab.pipelines.engine.command import watch


@pytest.fixture
def terminal(monkeypatch):
    page = io.StringIO()
    monkeypatch.setattr(watch, "Console", lambda stderr: Console(file=page, force_terminal=True, width=120))
    return page


def shown(bar):
    """The frame as it is now, without the bar itself."""
    page = Console(file=io.StringIO(), width=120)
    page.print(bar._bar.get_renderable())
    return " ".join(re.sub(r"[━╸╺]", "", page.file.getvalue()).split())


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    progress = watch.Progress
    monkeypatch.setattr(
        watch, "Progress", lambda *columns, **options: progress(*columns, **options, get_time=lambda: now[0])
    )
    return now


def test_a_fit_shows_its_steps_its_loss_elapsed_time_and_time_left(terminal, clock):
    with watch.TrialBar("init_scale", "loss/test") as bar:
        clock[0] += 7
        assert shown(bar) == "init_scale starting 0:07 elapsed"
        bar.on_metrics({"loss/train": 2.0, "nfa/0": 0.1}, 0)
        bar.on_step(0, 800)
        assert shown(bar) == "init_scale step 0/800 loss/train 2 0:07 elapsed"
        bar.on_metrics({"loss/test": 1.25}, 0)
        for step in range(1, 201):
            clock[0] += 0.02
            bar.on_step(step, 800)
        found = re.fullmatch(r"init_scale step 200/800 loss/test 1.25 0:11 elapsed (.*) left", shown(bar))
        assert found
        assert found[1] in ("0:12", "0:13")


def test_a_second_fit_says_that_the_time_left_is_its_own(terminal, clock):
    with watch.TrialBar("two", "loss/test") as bar:
        for _ in range(2):
            for step in range(11):
                clock[0] += 1
                bar.on_step(step, 20)
        frame = shown(bar)
        assert re.fullmatch(r"two fit 2, step 10/20 0:22 elapsed 0:1\d left of this fit", frame), frame


def test_a_trial_that_does_not_train_shows_its_steps_and_no_time_left(terminal, clock):
    with watch.TrialBar("curves", "loss/val") as bar:
        clock[0] += 3
        bar.on_metrics({"loss/val": 0.5}, 2)
        assert shown(bar) == "curves step 2 loss/val 0.5 0:03 elapsed"
