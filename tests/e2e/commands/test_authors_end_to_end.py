"""A stranger's first figure: from the template to its verdict."""

import tomllib
from pathlib import Path

import pytest
from authoring import installed
from commandline import CommandLine

NAME = "my_lab/rank"


@pytest.fixture(scope="module")
def written(lab: CommandLine) -> CommandLine:
    """The command in a folder where the template was written, and is found as pip would make it found."""
    here = lab.desk("written")
    said = here("new", NAME)
    assert said.err.splitlines()[:2] == ["wrote my_lab/rank.py", "wrote pyproject.toml"]
    return installed(here)


def test_the_template_is_checked_run_judged_and_drawn_as_it_stands(written: CommandLine) -> None:
    assert written("check", NAME).err == f"{NAME}: 4 trials, 1 claim, figure drawn: nothing is missing\n"
    (figure,) = written("reproduce", NAME, "--json").document["experiments"]
    assert (figure["name"], figure["trials"], figure["figure"]) == (NAME, 6, "figure.png")
    assert [claim["status"] for claim in figure["claims"]] == ["holds"]
    assert NAME in written("list").out


def test_check_names_what_a_figure_lacks(written: CommandLine) -> None:
    path = written.home / "my_lab" / "rank.py"
    whole = path.read_text()
    constant = whole.replace('return runs.final("accuracy/test", n_train=256) - ', "return 1 + 0 * ")
    path.write_text(constant.replace("@figure.cost\n", ""))
    try:
        said = written("check", NAME, code=1).err.splitlines()
    finally:
        path.write_text(whole)
    assert f"{NAME}: no cost is declared: @figure.cost" in said
    assert f"{NAME}: claim more_samples_help does not depend on what was measured" in said
    assert said[-1] == f"featurelab: {NAME} lacks {len(said) - 1} things"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("rank", "name of an experiment"),
        ("../x/y", "name of an experiment"),
        ("Engine/x", "name of an experiment"),
        ("engine/x", "featurelab's own"),
        ("neural_feature_ansatz/init_scale", "neural_feature_ansatz/init_scale already"),
    ],
)
def test_a_name_that_cannot_be_is_refused_and_nothing_written(lab: CommandLine, name: str, says: str) -> None:
    here = lab.elsewhere(lab.home / "empty")
    assert says in here("new", name, code=2).err
    assert list(here.home.iterdir()) == []


def test_a_file_that_exists_is_not_written_over(lab: CommandLine) -> None:
    here = lab.elsewhere(lab.home / "twice")
    here("new", NAME)
    file: Path = here.home / "my_lab" / "rank.py"
    file.write_text("mine")
    assert "exists already" in here("new", NAME, code=2).err
    assert file.read_text() == "mine"
    assert "added an entry point to pyproject.toml" in here("new", "my_lab/other").err
    points = tomllib.loads((here.home / "pyproject.toml").read_text())["project"]["entry-points"]
    assert points == {
        "featurelab.experiments": {"my_lab.other": "my_lab.other:figure", "my_lab.rank": "my_lab.rank:figure"}
    }
    (here.home / "pyproject.toml").write_text('[project]\nname = "mine"\n')
    said = here("new", "my_lab/third")
    assert '"my_lab.third" = "my_lab.third:figure"' in said.out
    assert "add to pyproject.toml" in said.err
