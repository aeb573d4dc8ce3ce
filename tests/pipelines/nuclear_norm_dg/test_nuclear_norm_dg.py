"""What the figures on domain generalisation rest on."""

import madeup
import numpy as np
import pytest

from featurelab.modules import data, theory
from featurelab.pipelines.engine.verdict.check import performed
from featurelab.pipelines.nuclear_norm_dg import (
    algorithms,
    bounded_rank,
    infinite_data,
    population,
    strength,
    synthetic,
    tables,
)
from featurelab.pipelines.nuclear_norm_dg.printed import TABLES


def test_the_tables_have_the_papers_rows_and_columns():
    sizes = {name: (len(table), len(next(iter(table.values())))) for name, table in TABLES.items()}
    assert sizes == {
        "6.1": (25, 6),
        "E.1": (22, 5),
        "E.2": (22, 5),
        "E.3": (22, 5),
        "E.4": (22, 5),
        "E.5": (22, 7),
        "E.6": (4, 6),
    }
    assert TABLES["6.1"]["SWAD-NU"]["PACS"] == (88.5, 0.2)
    assert all(error is None for table in TABLES.values() for row in table.values() for error in [row["avg"][1]])


def test_gains_and_their_errors_are_those_of_the_printed_averages():
    assert tables.gains()["E.4", "ERM"] == pytest.approx(3.5)
    cells = [(0.4, 0.9, 0.5, 1.3), (0.4, 0.3, 0.9, 0.5)]
    expected = 2 * sum(sum(e * e for e in row) / 16 for row in cells) ** 0.5
    assert tables.two_errors("E.1", "ERM") == pytest.approx(expected)


def test_the_slope_of_gradient_descent_from_a_small_start_is_that_of_the_first_step():
    small = synthetic.early.laptop.but(
        n_train=20000, n_test=100, steps=1, measure_every=1, lr=1e4, init_scale=1e-6, head_scale=1.0
    )
    found = performed(synthetic.early, [small])
    assert found.final("slope") == pytest.approx(0.4, abs=0.02)


def test_slopes_at_equal_norm_are_taken_where_both_penalties_reach():
    kept = {"l2": np.array([[1.0, 0.5], [2.0, 0.6], [4.0, 0.4]]), "nuclear": np.array([[3.0, 0.3], [9.0, 0.9]])}
    norms, slopes = population.slopes_at_equal_norm(kept)
    assert norms[0] == pytest.approx(np.hypot(3, 0.3))
    assert norms[-1] == pytest.approx(np.hypot(4, 0.4))
    assert slopes["nuclear"] == pytest.approx(np.full(20, 0.1))


def test_an_optimum_of_two_numbers_is_that_of_all_weights():
    config = infinite_data.in_full.laptop.but(n_train=4000, dim=24, invariant=8)
    found = performed(infinite_data.in_full, [config])
    assert found.final("alpha_mean") == pytest.approx(found.final("alpha"), rel=0.03)
    assert found.final("beta_mean") == pytest.approx(found.final("beta"), rel=0.05)


def test_the_nuclear_norm_leaves_the_weights_of_features_that_fail_elsewhere_small():
    config = bounded_rank.trained.laptop.but(n_train=400, n_test=400, steps=800, strength=0.2)
    shares = {
        penalty: performed(bounded_rank.trained, [config.but(penalty=penalty)]).final("invariant_share")
        for penalty in ("nuclear", "l2")
    }
    assert shares["nuclear"] > shares["l2"]


@pytest.mark.parametrize("algorithm", ["erm", "mixup", "swad"])
def test_each_algorithm_trains_with_each_penalty(algorithm):
    small = algorithms.figure.small_configs()[0]
    finals = [
        performed(algorithms.figure, [small.but(algorithm=algorithm, penalty=penalty, strength=1.0)]).final("loss/ood")
        for penalty in ("none", "nuclear", "coral")
    ]
    assert len(set(finals)) == 3


def test_without_spurious_colours_they_agree_with_the_label_by_chance_in_every_domain(monkeypatch):
    seen = []
    made = data.coloured_digits

    def noted(agreements, held_out, **options):
        seen.append([*agreements, held_out])
        return made(agreements, held_out, **options)

    monkeypatch.setattr(data, "coloured_digits", noted)
    small = algorithms.figure.small_configs()[0].but(held_out=1)
    performed(algorithms.figure, [small, small.but(control="no_spurious")])
    assert seen == [[0.9, 0.7, 0.1, 0.8], [0.0] * 4]


def test_no_decision_has_both_accuracies_that_figure_6_2_gives_to_erm():
    (claim,) = [claim for claim in synthetic.early.claims if claim.id == "c2_erm"]
    assert claim.kind == "identity"
    least, (low, high) = 0.97, (0.73, 0.79)
    angles = np.linspace(-np.pi, np.pi, 20_001)
    pairs = [
        [theory.nuclear_norm_dg.direction_accuracy((np.cos(a), np.sin(a)), share) for share in (0.7, 0.3)]
        for a in angles
    ]
    inside, outside = np.array(pairs).T
    assert inside.max() > least
    assert ((low <= outside) & (outside <= high)).any()
    assert outside[inside >= least].min() > 0.92  # t = 0.2 has 0.97 and 0.93
    assert inside[(low <= outside) & (outside <= high)].max() < 0.92  # t = 0.6 has 0.91 and 0.79


@pytest.mark.parametrize(("best", "gained"), [(2, 0.2), (0, 0.0)])
def test_the_gain_is_that_of_the_strength_that_validation_chooses_among_all(best, gained):
    """The accuracy out of domain rises by a tenth a strength; validation in domain is best at `best`."""
    places = {value: place for place, value in enumerate(strength.STRENGTHS)}

    def accuracies(config):
        place = places[config["strength"]]
        return {"final_accuracy/ood": 0.1 * place, "final_accuracy/id": 0.9 - 0.01 * abs(place - best)}

    configs = [{"penalty": "nuclear", "colour": 1.0, "strength": value, "seed": 0} for value in places]
    assert strength.gain(madeup.results(configs, accuracies)) == pytest.approx(gained)
