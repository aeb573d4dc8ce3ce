"""A stranger brings data of their own: what the page shows works, and each mistake is told in one line."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from authoring import changed, installed
from commandline import CommandLine

PAGE = Path(__file__).parents[3] / "docs" / "own_data.md"
NAME = "my_lab/noise_levels"
ENTRY = '"my_lab.noise_levels" = "my_lab.noise_levels:figure"'


@pytest.fixture(scope="module")
def written(lab: CommandLine) -> CommandLine:
    here = lab.desk("own data")
    here("new", NAME)
    return here


def test_a_figure_of_this_folder_that_is_not_installed_is_told_from_a_name_that_does_not_exist(
    written: CommandLine,
) -> None:
    for command in (["check", NAME], ["run", NAME], ["sweep", NAME, "--over", "lr=0.1"]):
        said = written(*command, code=2).err
        assert f"{NAME} is not installed" in said
        assert "pip install -e ." in said
        assert said.count("\n") == 1
    assert written("list", "my_lab", code=2).err.startswith("featurelab: my_lab is not installed: pip install -e .")
    assert "unknown experiment" in written("check", "my_lab/other", code=2).err
    changed(written.home / "pyproject.toml", ENTRY, "")
    try:
        said = written("check", NAME, code=2).err
    finally:
        written.home.joinpath("pyproject.toml").open("a").write(ENTRY + "\n")
    assert said.startswith(f"featurelab: {NAME} is not installed: add {ENTRY} to [project.entry-points.")


def test_the_template_carries_the_name_and_nothing_of_another_figure(written: CommandLine) -> None:
    source = (written.home / "my_lab" / "noise_levels.py").read_text()
    assert source.startswith('"""Noise levels: ')
    assert f'name="{NAME}"' in source
    assert "class NoiseLevelsConfig(Config):" in source
    assert not re.search("template|figure_name|figure name|rank", source, re.IGNORECASE)


def test_setuptools_has_nothing_to_say_about_the_project(written: CommandLine, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pip", "wheel", "-vv", "--no-deps", "--no-build-isolation", "-w", str(tmp_path)]
    project = shutil.copytree(written.home, tmp_path / "project")  # building leaves files there
    made = subprocess.run([*command, str(project)], capture_output=True, text=True, check=True)
    assert not re.search("entry point `|recommended|deprecat", made.stdout + made.stderr, re.IGNORECASE)
    assert [path.name for path in tmp_path.glob("*.whl")] == ["my_lab-0.1.0-py3-none-any.whl"]


@pytest.fixture
def mistaken(written: CommandLine) -> CommandLine:
    """An installed package whose trial raises in a function that it calls."""
    here = installed(written)
    source = here.home / "my_lab" / "noise_levels.py"
    right = source.read_text()
    changed(source, "x[:, 0] += ", "x[:, 99] += ")
    yield here  # type: ignore[misc]
    source.write_text(right)


def test_a_mistake_in_a_trial_is_one_line_with_the_authors_own_place(mistaken: CommandLine) -> None:
    source = (mistaken.home / "my_lab" / "noise_levels.py").read_text().splitlines()
    number = next(number for number, text in enumerate(source, 1) if "x[:, 99]" in text)
    told = f"IndexError: index 99 is out of bounds for axis 1 with size 64 (my_lab/noise_levels.py:{number} in samples)"
    said = mistaken("check", NAME, code=1).err
    assert said == f"featurelab: {NAME}: a trial: {told} [traceback: .featurelab/check.txt]\n"
    assert "Traceback (most recent call last)" in (mistaken.home / ".featurelab" / "check.txt").read_text()
    ran = mistaken("run", NAME, "--json", code=1)
    assert "Traceback" not in ran.err
    run = mistaken.client.get_run(ran.document["run_id"])
    assert run.data.tags["reason"] == told
    kept = Path(mistaken.client.download_artifacts(run.info.run_id, "traceback.txt")).read_text()
    assert f'noise_levels.py", line {number}, in samples' in kept
    swept = mistaken("sweep", NAME, "--over", "lr=0.1", code=1)
    assert f"1 trial failed: {told}" in swept.err
    assert "Traceback" not in swept.err + swept.out


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (
            "order_seed=order, dtype=config.dtype)",
            "order_seed=order)",
            r"a trial: TypeError: .*write dtype=config\.dtype .*\(my_lab/noise_levels\.py:\d+ in train\)",
        ),
        (
            'final("accuracy/test", n_train=32)',
            'final("accuracy/tset", n_train=32)',
            r"no accuracy/tset with n_train = 32: did you mean accuracy/test or accuracy/train\?",
        ),
        ("fit(learner, task,", "fit(learner, (x, 3),", r"a trial: TypeError: data must be a data module, a DataLoader"),
        ("alignment.set(", "alignment.sett(", r"the drawing: AttributeError: .*\(my_lab/.*\.py:\d+ in panels\)"),
        (
            "        dim=64,\n",
            "        dim=64,\n        wrong=1,\n",
            r"the cost: TypeError: .*\(my_lab/noise_levels\.py:\d+ in cost\)",
        ),
        ("return runs.final(", "return runs.ending(", r"claim more_samples_help: AttributeError: .* in more_sa.*\)"),
    ],
    ids=["types", "metric", "data", "drawing", "cost", "claim"],
)
def test_check_tells_each_mistake_of_an_author_in_one_line(written: CommandLine, old: str, new: str, says: str) -> None:
    here = installed(written)
    source = here.home / "my_lab" / "noise_levels.py"
    right = source.read_text()
    changed(source, old, new)
    try:
        said = here("check", NAME, code=1).err
    finally:
        source.write_text(right)
    assert re.search(says, said), said
    assert "Traceback" not in said
    assert len(said.splitlines()) == 1 + ("lacks" in said)


def test_every_figure_of_the_page_is_whole(lab: CommandLine) -> None:
    here = lab.desk("page")
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    names = [re.search(r'name="my_lab/(\w+)"', block)[1] for block in blocks]  # type: ignore[index]
    assert names == ["tensors", "loader", "hub"]
    for name, block in zip(names, blocks, strict=True):
        here("new", f"my_lab/{name}")
        (here.home / "my_lab" / f"{name}.py").write_text(block)
    here = installed(here)
    for name in names:
        assert re.fullmatch(
            r"my_lab/\w+: \d trials, 1 claim, figure drawn: nothing is missing\n", here("check", f"my_lab/{name}").err
        )
    assert [line.split("\t")[0] for line in here("list", "my_lab").out.splitlines()] == [f"my_lab/{n}" for n in names]
