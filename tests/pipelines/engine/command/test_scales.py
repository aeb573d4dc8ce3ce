"""Figures with and without a desktop preset, at each scale."""

import pytest

from featurelab.pipelines import Config, Experiment, Field, above
from featurelab.pipelines.engine.command.cli import app
from featurelab.pipelines.engine.command.verbs.reproduce import at_scale
from featurelab.pipelines.engine.errors import RequestError
from featurelab.pipelines.engine.experiment.catalogue import registry
from featurelab.pipelines.engine.experiment.known import Finding, Known


class Sized(Config):
    n_train: int = Field(10, description="samples")


GRID = {"seed": [0, 1, 2]}


def made(name: str, **parts) -> Experiment:
    return Experiment(
        name=f"madeup/{name}", title="sizes", laptop=Sized(), paper=Sized(n_train=1000), grid=GRID, minutes=1, **parts
    )


@pytest.fixture
def figures(monkeypatch):
    """One figure with a desktop preset, and one without."""
    real = made("real", desktop=Sized(n_train=100), desktop_grid={"seed": range(4)}, desktop_minutes=7)
    drawn = made("drawn")
    monkeypatch.setattr(registry, "systems", lambda: ["madeup"])
    monkeypatch.setattr(registry, "_load", lambda systems: ([real, drawn], {}))
    return real, drawn


def test_a_desktop_preset_has_trials_of_its_own(figures):
    real, drawn = figures
    assert [(c.n_train, c.seed) for c in real.configs("desktop")] == [(100, seed) for seed in range(4)]
    assert {config.n_train for config in real.configs("laptop")} == {10}
    assert real.scales == ["laptop", "desktop", "paper"]
    assert drawn.scales == ["laptop", "paper"]


def test_the_list_has_the_minutes_of_a_desktop_preset_where_there_is_one(figures):
    real, drawn = (figure.summary()["scales"] for figure in figures)
    assert real["desktop"] == {"minutes": 7}
    assert set(drawn) == {"laptop", "paper"}


def test_a_variant_gets_no_desktop_preset_unless_it_declares_one(figures):
    real, _ = figures
    assert "desktop" not in real.variant("wider", title="wider").scales
    with_one = real.variant("other", title="other", desktop=Sized(n_train=50), desktop_minutes=2, threads=2)
    assert {(config.n_train, config.threads) for config in with_one.configs("desktop")} == {(50, 2)}


@pytest.mark.parametrize("parts", [{"desktop": Sized()}, {"desktop_minutes": 3}])
def test_a_desktop_preset_is_declared_with_its_minutes(parts):
    with pytest.raises(ValueError, match="desktop_minutes"):
        made("half", **parts)


@pytest.mark.parametrize("names", [[], ["madeup"]])
def test_figures_without_a_preset_of_the_scale_are_skipped_with_one_line(figures, names, capsys):
    real, _ = figures
    assert at_scale(registry.select(names), names, "desktop") == [real]
    (line,) = capsys.readouterr().err.splitlines()
    assert "madeup/drawn" in line


def test_nothing_is_skipped_at_the_other_scales(figures, capsys):
    for scale in ("laptop", "paper"):
        assert at_scale(list(figures), [], scale) == list(figures)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("command", ["reproduce", "run", "sweep"])
def test_a_named_figure_without_a_preset_of_the_scale_is_refused(figures, command, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RequestError, match="no desktop preset") as refusal:
        app([command, "madeup/drawn", "--scale", "desktop"], standalone_mode=False)
    assert "\n" not in str(refusal.value)
    assert list(tmp_path.iterdir()) == []


def test_a_system_without_any_preset_of_the_scale_is_refused(figures):
    with pytest.raises(RequestError, match="madeup/real"):
        at_scale([figures[1]], ["madeup"], "desktop")


def test_each_scale_is_held_against_its_own_record(figures):
    real, _ = figures
    real.claim("grows", says="it grows with every sample", expect=above(0))(lambda runs: 1.0)
    (claim,) = real.claims
    record = Known(
        laptop=Finding(status="fails", reason="too few"), desktop=Finding(status="undecided", reason="noisy")
    )
    object.__setattr__(claim, "recorded", lambda: record)
    assert [claim.documented(scale) for scale in real.scales] == ["fails", "undecided", "fails"]
    assert [claim.because(scale) for scale in real.scales] == ["too few", "noisy", "at laptop scale: too few"]


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (Known(laptop=Finding(status="holds", measured=1.0), paper=Finding(status="fails", reason="slow")), "fails"),
        (Known(laptop=Finding(status="untested", reason="no pictures")), "holds"),
        (Known(desktop=Finding(status="fails", reason="noisy")), "holds"),
        (Known(), "holds"),
    ],
)
def test_paper_scale_is_expected_to_end_as_laptop_did_until_it_has_a_record(figures, record, expected):
    real, _ = figures
    real.claim("grows", says="it grows with every sample", expect=above(0))(lambda runs: 1.0)
    (claim,) = real.claims
    object.__setattr__(claim, "recorded", lambda: record)
    assert claim.documented("paper") == expected
