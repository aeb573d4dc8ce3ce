"""The measures of all papers on the networks of each."""

import pandas as pd
import pytest

from featurelab.pipelines.cross.along_training import CrossConfig, datasets, halfway, together
from featurelab.pipelines.engine.experiment.catalogue import registry
from featurelab.pipelines.engine.verdict.check import performed

FIGURES = [experiment for experiment in registry.experiments("cross") if isinstance(experiment.laptop, CrossConfig)]
each = pytest.mark.parametrize("experiment", FIGURES, ids=lambda experiment: experiment.name)


@pytest.mark.parametrize(
    "experiment",  # the sides of the boundary have the two-layer network, and its sizes
    [pytest.param(e, marks=[pytest.mark.heavy] * e.name.endswith("/sides_of_the_boundary")) for e in FIGURES],
    ids=lambda experiment: experiment.name,
)
def test_one_step_at_the_larger_size(experiment):
    results = performed(experiment, [experiment.paper.but(steps=1, measurements=1, n_train=64)])
    assert set(results.trials.status) == {"finished"}
    assert list(results.curves("alignment/1").index) == [0, 1]


@each
def test_unseen_classes_are_in_no_training_batch(experiment):
    task, (unseen, labels) = datasets(experiment.laptop.but(n_train=64))
    seen = {row.numpy().tobytes() for row in task.train[0]}
    assert not any(row.numpy().tobytes() in seen for row in unseen)
    assert set(labels.tolist()) == {0, 1}


def test_halfway_is_the_share_of_training_at_which_half_of_the_way_is_first_covered():
    assert halfway(pd.Series([0.0, 1.0, 5.0, 10.0], index=[0, 10, 20, 40])) == 0.5
    assert halfway(pd.Series([0.0, 0.0, 4.0, 1.0, 2.0], index=[0, 10, 20, 30, 50])) == pytest.approx(0.25)
    assert halfway(pd.Series([3.0, 2.0, -1.0], index=[0, 1, 4])) == pytest.approx(0.5)
    assert halfway(pd.Series([2.0, 2.0, 2.0], index=[0, 1, 4])) == 0


def test_together_compares_only_steps_at_which_both_were_measured():
    one = pd.Series([1.0, 2.0, 3.0], index=[1, 2, 3])
    assert together(one, pd.Series([9.0, 4.0, 5.0, 6.0], index=[0, 1, 2, 3])) == pytest.approx(1.0)
    assert together(one, pd.Series([-1.0, -2.0, -3.0], index=[1, 2, 3])) == pytest.approx(-1.0)
