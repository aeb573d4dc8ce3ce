"""Figure 5.2, one model. Inverted labels in prompts of SST-2, read by one published model.

A model that cannot do the task with true labels has nothing to lose when they are inverted, and says nothing about the
claim. Where its accuracy is not above a null level, the share of the larger class, by two standard errors, the paper's
claims are untested. Its accuracy with random labels of the exemplars tells how much it owes to them.

The paper preset reads stories260K, a Llama of 0.26 million parameters that was trained on short stories, with four
exemplars, as many as its 512 tokens hold; `--over model=...` replaces it. The desktop preset is the same with fewer
seeds. The laptop preset trains a stand-in, so that nothing has to be fetched.
"""

from featurelab.pipelines import (
    CATEGORIES, Experiment, Field, Missing, Recorder, above, bars, choice, legend_below, loguniform, np, null_level,
)
from featurelab.pipelines.icl_scale.flipped_labels import LEARNED
from featurelab.pipelines.icl_scale.in_context_labels import LabelsConfig, asked, cost, flip_curve, task_of


class SentimentConfig(LabelsConfig):
    level_draws: int = Field(1, ge=1, description="times that labels are drawn at random, for the null level")


STORIES = SentimentConfig(family="base", size=0.00026, model="stories260K", dataset="sst2", width=16, exemplars=4,
    n_test=400, steps=800)

figure = Experiment(
    name="icl_scale/sentiment", figures=("Fig. 5.2",), part="one model",
    title="One model on prompts with inverted labels",
    caption="Mean over seeds, bars their range. Grey: the share of the larger class, and accuracy with random labels "
    "of the exemplars.", laptop=SentimentConfig(size=10, width=16, heads=2, exemplars=4, steps=800), paper=STORIES,
    grid={"seed": range(6)}, desktop=STORIES, desktop_minutes=2.5, desktop_grid={"seed": [0, 1, 2]},
    reduced="stories260K, of 0.26 million parameters, in place of Llama models of 3 to 70 billion, as in the paper "
    "preset, with three seeds in place of six",
    sweep_axes={"lr": loguniform(1e-3, 1e-2), "width": choice(4, 8, 16, 32), "weight_decay": loguniform(1e-4, 1.0)},
    metric="accuracy/flipped", mode="max", minutes=0.6, needs=("sst2",),
    stand_in="a small decoder trained on a made-up language in place of a published model and SST-2",
    small=LEARNED | {"n_test": 40, "width": 8, "heads": 1},
)
figure.cost(cost)


@figure.trial
def run(config: SentimentConfig, recorder: Recorder) -> None:
    task = task_of(config, recorder)
    flip_curve(task, config, recorder)
    for draw in range(config.level_draws):
        prompts = task.prompts(config, shown="random", draw=draw)
        asked(task, prompts, "random_labels", config, recorder, step=draw)
    share = prompts.targets.double().mean().item()
    recorder.log({"accuracy/larger_class": max(share, 1 - share), "prompts/read": len(prompts.prompts)}, step=0)


def able(runs):
    """Raises `Missing` where the model cannot do the task."""
    plain, null, n = runs.at("accuracy/flipped", 0), runs.final("accuracy/larger_class"), runs.final("prompts/read")
    error = np.sqrt(plain * (1 - plain) / n)
    if plain - 2 * error <= null:
        accuracy = f"with true labels it is right in {plain:.3f} (standard error {error:.3f}) of the prompts"
        raise Missing(f"the model cannot do the task: {accuracy}, the larger class has {null:.3f}")


@figure.claim("s1_the_model_can_do_the_task", origin="ours",
    says="With true labels the model is right more often than a guess of the larger class (difference of accuracies)",
    expect=above(0), controls=("permuted_labels", "untrained"), within=(-1, 1))
def can(runs):
    n = runs.final("prompts/read")  # accuracies are stored in single precision, in which equal values must be equal
    return (round(n * runs.at("accuracy/flipped", 0)) - round(n * runs.final("accuracy/larger_class"))) / n


@figure.claim("s1b_it_uses_the_labels_it_is_shown", origin="ours", says="The model is right more often with true "
    "labels of the exemplars than with random ones (difference of accuracies)", expect=above(0), within=(-1, 1))
def uses(runs):
    return runs.at("accuracy/flipped", 0) - runs.curve("accuracy/random_labels").mean()


@figure.claim("s2_inverted_labels_take_accuracy", paper="accuracy falls as labels are inverted; curves, no number",
    says="The model is right more often with true labels than with all labels inverted (difference of accuracies)",
    expect=above(0), within=(-1, 1))
def takes(runs):
    able(runs)
    return runs.at("accuracy/flipped", 0) - runs.at("accuracy/flipped", 100)


@figure.claim("s3_falls_below_chance", paper="large models fall below chance, small ones seldom", expect=above(0),
    says="With all labels inverted the model is wrong more often than right (0.5 less its accuracy)",
    within=(-0.5, 0.5))
def below_chance(runs):
    able(runs)
    return 0.5 - runs.at("accuracy/flipped", 100)


@figure.draw(size=(5.2, 3.6))
def panel(runs, axes):
    axis = axes[0, 0]
    bars(axis, runs.curves("accuracy/flipped"), color=CATEGORIES[0], label="inverted labels")
    null_level(axis, runs.final("accuracy/larger_class"), "larger class")
    null_level(axis, runs.curve("accuracy/random_labels").mean(), "random labels", linestyle="--")
    axis.set(xlabel="labels inverted (%)", ylabel="accuracy (query's own label)", ylim=(0, 1.03))
    legend_below(axis, 3)
