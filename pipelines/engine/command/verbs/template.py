"""Figure name: what the figure shows, in one line.

Say which network is trained on which data, what is measured, with formulas, and which paper the figure is from.
"""

# Everything that an experiment needs comes from here. Libraries such as NumPy are imported at their first use.
from featurelab.pipelines import (
    Config,
    Experiment,
    Field,
    Recorder,
    above,
    choice,
    curves,
    data,
    fit,
    learners,
    loguniform,
    mlp_cost,
    nets,
    np,
    probes,
)


# The settings of a trial. Every config also has `seed`, `threads`, `device` and `precision`.
class FigureNameConfig(Config):
    n_train: int = Field(256, ge=1, description="training samples")
    batch_size: int = Field(32, ge=1, description="samples in a batch")
    width: int = Field(64, ge=1, description="units of each hidden layer")
    lr: float = Field(0.05, gt=0, description="learning rate")
    weight_decay: float = Field(0.0, ge=0, description="weight decay of every layer")
    epochs: int = Field(30, ge=1, description="passes over the training samples")


# A figure is a sweep. `laptop` and `paper` are two presets of the settings. `grid` has the axes of the figure, seeds
# included, and `sweep_axes` those that one would search. At the sizes in `small`, the whole grid runs in seconds.
figure = Experiment(
    name="template/figure_name",
    figures=("Fig. 1",),  # each figure and table of the paper that this makes; leave it out for a figure of your own
    title="Figure name: test accuracy against the number of training samples",
    caption="Lines are means over seeds, bands their range.",
    laptop=FigureNameConfig(),
    paper=FigureNameConfig(width=1024, epochs=300),
    grid={"n_train": [32, 256], "seed": [0, 1, 2]},
    sweep_axes={"lr": loguniform(1e-3, 1e-1), "width": choice(64, 256), "weight_decay": loguniform(1e-4, 1e-1)},
    metric="accuracy/test",
    mode="max",
    minutes=0.2,
    small={"width": 16, "epochs": 10},
)


# Replace this with your data, as tensors or arrays. Class labels are integers; other targets have shape (n, outputs).
# Draw random data from `config.streams.data`, so that a wider network sees the same samples.
#
# From a torch.utils.data.Dataset, or from a Hugging Face dataset that fits into memory:
#     x, y = next(iter(torch.utils.data.DataLoader(dataset, batch_size=len(dataset))))
#     rows = datasets.load_dataset("name", split="train").with_format("numpy")
#     x, y = rows["features"], rows["label"]
# For larger data, give `fit` a DataLoader instead of `task`. See docs/own_data.md of featurelab.
def samples(config: FigureNameConfig):
    rng = np.random.default_rng(config.streams.data)
    y = rng.integers(2, size=1000)
    x = rng.normal(size=(1000, 64))
    x[:, 0] += 3 * y - 1.5
    return x, y


# One run. The recorder stores what is measured; nothing here is about Ray or MLflow.
@figure.trial
def train(config: FigureNameConfig, recorder: Recorder) -> None:
    x, y = samples(config)
    seen, unseen = (x[: config.n_train], y[: config.n_train]), (x[-500:], y[-500:])
    order = config.streams.order
    task = data.TensorData(seen, unseen, batch_size=config.batch_size, order_seed=order, dtype=config.dtype)
    # For a network of your own, call torch.manual_seed(config.streams.init) before you create it.
    net = nets.mlp(x.shape[1], config.width, hidden=2, outputs=2, seed=config.streams.init, dtype=config.dtype)
    optimizer = learners.sgd(config.lr, momentum=0.9, weight_decay=config.weight_decay)
    learner = learners.Supervised(net, loss="cross_entropy", optimizer=optimizer)
    watching = [
        probes.LossProbe({"train": task.train, "test": task.test}, on="epoch", every=2),
        probes.AnsatzProbe(on="epoch", every=2, layers=["0"], inputs=(task.train[0][:32], task.train[1][:32])),
    ]
    fit(learner, task, config, recorder, epochs=config.epochs, probes=watching)


# An estimate of what a trial needs: `run --dry-run` shows it.
@figure.cost
def cost(config: FigureNameConfig):
    return mlp_cost(
        dim=64,
        width=config.width,
        hidden=2,
        outputs=2,
        n_train=config.n_train,
        batch_size=config.batch_size,
        steps=config.epochs * -(-config.n_train // config.batch_size),
        measures=config.epochs // 2,
    )


# A claim: a sentence that makes sense alone, and what to measure for it on the trials of one seed. `expect` says which
# values confirm the sentence, and `paper=` gives the published number. The verdict is about the mean over seeds. What
# was found is in `known.toml` beside this file: `featurelab known --write` writes it from stored verdicts, and you add
# the reasons.
@figure.claim(
    "more_samples_help",
    says="test accuracy is higher with 256 training samples than with 32 (difference)",
    expect=above(0),
    origin="ours",
)
def more_samples_help(runs):
    return runs.final("accuracy/test", n_train=256) - runs.final("accuracy/test", n_train=32)


# The figure, drawn from stored results: `axes` is an array with rows and columns.
@figure.draw(cols=2, size=(8, 3.4))
def panels(runs, axes):
    accuracy, alignment = axes[0]
    curves(accuracy, runs, "accuracy/test", across="n_train")
    accuracy.set(xlabel="step", ylabel="test accuracy")
    accuracy.legend()
    curves(alignment, runs, "nfa/0", across="n_train")
    alignment.set(xlabel="step", ylabel="NFA, layer 1")
