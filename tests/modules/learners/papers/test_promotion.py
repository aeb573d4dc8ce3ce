"""Going up a curriculum by the loss, and losses on several tokens of an answer."""

import pytest
import pytorch_lightning as pl
import torch

from featurelab.modules import data, learners


class Constant(torch.nn.Module):
    """Outputs its one weight for whatever it is given."""

    def __init__(self, value):
        super().__init__()
        self.value = torch.nn.Parameter(torch.tensor(value))

    def forward(self, x):
        return self.value.expand(len(x), 1)


def fitted(rise, *, below, steps, levels=3):
    """A fit whose loss at step t = 0, 1, ... is rise(t), whatever is learned."""
    parts = [(torch.full((2, 1), float(level)), torch.zeros(2, 1)) for level in range(levels)]
    module = data.Levels(
        [data.TensorData(part, batch_size=2, order_seed=None, dtype="float32") for part in parts], seed=0
    )
    shown, rates = [], []

    def loss(forward, batch):
        shown.append(int(batch[0][0, 0]))
        rates.append(learner.optimizers().param_groups[0]["lr"])
        return forward(batch[0]).mean() * 0 + rise(len(shown) - 1)

    learner = learners.Supervised(Constant(1.0), loss=loss, optimizer=learners.gd(0.1))
    up = learners.Promotion(below=below, then=4, memory=0.5)
    trainer = pl.Trainer(
        max_steps=steps,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[up],
    )
    trainer.fit(learner, datamodule=module)
    ahead = len(rates) - 4 if module.level == levels - 1 else len(rates)
    assert rates == pytest.approx([0.1] * ahead + [0.1, 0.075, 0.05, 0.025][: len(rates) - ahead])
    return module, up, shown


def test_levels_follow_the_running_mean_and_the_fit_ends_after_the_last():
    module, up, shown = fitted(lambda step: 1.0 if step < 5 else 0.0, below=0.2, steps=100)
    # level 0: mean 1 at steps 0 to 4, then 1/2, 1/4, 1/8: below 0.2 after the eighth
    assert up.reached[0] == 8
    assert module.level == 2
    assert len(shown) == up.reached[1] + 4
    assert set(shown[:8]) == {0}
    mean, level, reached = None, 0, []
    for step, each in enumerate(shown):  # the rule once more, from what was shown
        if each == level < 2:
            value = 1.0 if step < 5 else 0.0
            mean = value if mean is None else (mean + value) / 2
            if mean < 0.2:
                level, mean = level + 1, None
                reached.append(step + 1)
    assert reached == up.reached


def test_a_learner_that_does_not_learn_stays_where_it_is():
    module, up, shown = fitted(lambda step: 1.0, below=0.2, steps=12)
    assert (module.level, up.reached, set(shown), len(shown)) == (0, [], {0}, 12)
    state = up.state_dict()
    again = learners.Promotion(below=0.2, then=4)
    again.load_state_dict(state)
    assert again.state_dict() == state
    with pytest.raises(ValueError, match="memory"):
        learners.Promotion(below=0.1, then=1, memory=1.0)


@pytest.mark.parametrize(("behind", "tokens"), [(0, 1), (1, 2), (2, 1)])
def test_answers_stand_behind_their_marker(behind, tokens):
    torch.manual_seed(0)
    marker, x = 9, torch.randint(0, 9, (5, 20))
    x[:, [3, 11]] = marker
    at = [place + behind + i for place in (3, 11) for i in range(tokens)]
    logits = torch.randn(5, 20, 10)
    y = torch.randint(0, 10, (5, len(at)))
    found = learners.answer_loss(marker, behind=behind, tokens=tokens)(lambda x: logits, (x, y))
    each = [-logits[row, place].log_softmax(0)[y[row, i]] for row in range(5) for i, place in enumerate(at)]
    assert found.item() == pytest.approx(torch.stack(each).mean().item(), rel=1e-6)
    with pytest.raises(ValueError, match=f"tokens after {marker}, but y holds"):
        learners.answer_loss(marker, behind=behind, tokens=tokens)(lambda x: logits, (x, y[:, :1]))
