"""What MLflow's pages are told of figures."""

from featurelab.pipelines.engine.experiment.catalogue import registry
from featurelab.pipelines.engine.sweep.descriptions import sweep_note


def test_the_paper_of_a_figure_is_named_and_linked_to() -> None:
    note = sweep_note(registry.find("neural_feature_ansatz/init_scale"), "mine", ["lr"], 3)
    assert "[arXiv:2402.05271](https://arxiv.org/abs/2402.05271)" in note
    assert "Fig. 2" in note
    assert "`featurelab sweep neural_feature_ansatz/init_scale --resume mine`" in note


def test_every_system_says_what_its_paper_is() -> None:
    for experiment in registry.experiments():
        _, paper, _ = sweep_note(experiment, "mine", ["lr"], 3).split("\n\n", 2)
        assert not paper.startswith("`"), experiment.name
