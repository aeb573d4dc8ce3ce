"""A sweep file says what a command line says, and refuses in one line what it does not know."""

import pytest

from featurelab.pipelines.engine.errors import RequestError
from featurelab.pipelines.engine.experiment.axes import Drawn, Listed, choice, loguniform, randint, uniform
from featurelab.pipelines.engine.experiment.config import Config
from featurelab.pipelines.engine.sweep.file import Metric, OfTrial, SweepFile, parameters


class Wide(Config):
    lr: float = 0.1
    width: int = 1
    depth: int = 2
    act: str = "relu"


def read(tmp_path, text):
    path = tmp_path / "sweep.yaml"
    path.write_text(text)
    return SweepFile.read(path)


@pytest.mark.parametrize(
    ("written", "axis"),
    [
        ("{min: 1e-4, max: 0.1, distribution: log_uniform_values}", loguniform(1e-4, 0.1)),
        ("{min: 0.5, max: 2}", uniform(0.5, 2.0)),
        ("{min: 2, max: 8}", randint(2, 9)),
        ("{min: 2, max: 8, distribution: uniform}", uniform(2.0, 8.0)),
        ("{values: [0.1, 0.2], distribution: categorical}", choice(0.1, 0.2)),
        ("{values: [0.1, 0.2]}", Listed((0.1, 0.2))),
    ],
)
def test_a_parameter_becomes_the_axis_that_the_command_line_would_give(tmp_path, written, axis):
    found = read(tmp_path, f"experiment: a/b\nparameters:\n  lr: {written}\n  width: {{value: 3}}")
    assert found.axes(Wide) == {"lr": axis}
    assert found.fixed(Wide) == {"width": 3}


def test_a_file_that_was_written_reads_as_the_same_request(tmp_path):
    axes = {
        "lr": loguniform(1e-5, 0.1),
        "width": Drawn("randint", (1, 9)),
        "depth": Listed(("2", "3")),
        "act": choice("relu", "gelu"),
    }
    written = SweepFile(
        experiment="a/b",
        name="night",
        metric=Metric(name="loss/test", goal="maximize"),
        samples=3,
        scheduler="asha",
        resources=OfTrial(gpus=0.5),
        parameters=parameters(axes, {"seed": "4"}, Wide()),
    )
    found = read(tmp_path, written.text())
    assert found == written
    assert found.axes(Wide) == axes | {"depth": Listed((2, 3))}
    assert found.fixed(Wide) == {"seed": 4}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("experiment: a/b\nsample: 3", "did you mean samples?"),
        ("experiment: a/b\nmetric: {goals: minimize}", "did you mean goal?"),
        ("experiment: a/b\nresources: {gpu: 1}", "did you mean gpus?"),
        ("experiment: a/b\nparameters: {lr: {valeus: [1]}}", "did you mean values?"),
        ("experiment: a/b\nparameters: {lr: 0.1}", "lr: {value: 0.1}"),
        ("experiment: a/b\nmethod: bayes", "'grid' or 'random'"),
        ("method: grid", "experiment"),
        ("experiment: a/b\nparameters: {lr: {value: 1, value: 2}}", "twice"),
    ],
)
def test_what_a_file_may_not_say_gives_one_line_that_names_the_file(tmp_path, text, said):
    with pytest.raises(RequestError) as refused:
        read(tmp_path, text)
    assert said in str(refused.value)
    assert "sweep.yaml" in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("parameter", "said"),
    [
        ("lrr: {value: 1}", "did you mean lr?"),
        ("lr: {min: 1, max: 2, distribution: log_uniform_value}", "did you mean log_uniform_values?"),
        ("lr: {min: 1}", "lr: write value"),
        ("lr: {min: 2.5, max: 1}", "lr: uniform"),
        ("lr: {values: []}", "lr: values are empty"),
        ("lr: {value: 1, min: 2}", "lr: value stands alone"),
        ("lr: {min: 1.5, max: 2}", "lr: method: grid"),
    ],
)
def test_what_is_no_axis_is_refused_with_its_name(tmp_path, parameter, said):
    found = read(
        tmp_path, f"experiment: a/b\nmethod: {'grid' if 'grid' in said else 'random'}\nparameters: {{{parameter}}}"
    )
    with pytest.raises(RequestError, match="^" if said.startswith("did") else said.partition(" ")[0]) as refused:
        found.axes(Wide)
    assert said in str(refused.value)
