"""Theorem 7.2. What the optimum encodes: invariant features where the norm allows it, and no spurious one.

Two invariant bits z_1 (fair) and z_2 (1 with probability p) and a spurious one make eight inputs. A free vector of norm
B in three dimensions for each of them minimises the loss with one negative, computed exactly over all triples. The
theorem promises that bit i is encoded from some norm B_i on, which falls as the bit varies more often.

Random vectors have an encoding strength of one half, as high as those trained: what tells them apart is the spurious
bit, so encoding is judged against it too.
"""

from typing import Literal

from featurelab.pipelines import (
    CATEGORIES,
    Config,
    Cost,
    Experiment,
    Field,
    Recorder,
    at_least,
    at_most,
    choice,
    data,
    fit,
    learners,
    loguniform,
    nets,
    np,
    probes,
    theory,
    torch,
)

NORMS, RATES = [0.3, 1.0, 3.0], [0.02, 0.1, 0.5]
BITS = {"z1": 0, "z2": 1}


class BitsConfig(Config):
    control: Literal["none", "untrained", "shuffled_pairs"] = Field(
        "none", description="what is destroyed; shuffled_pairs: a positive is any other input"
    )
    precision: Literal["64-true", "32-true"] = Field("64-true", description="Lightning precision")
    norm: float = Field(1.0, gt=0, description="B: the length of every representation")
    rate: float = Field(0.5, gt=0, lt=1, description="p: how often the second bit is 1")
    kind: Literal["logistic", "exp"] = Field("logistic", description="l")
    width: int = Field(3, ge=1, description="numbers in a representation")
    lr: float = Field(0.03, gt=0, description="learning rate of Adam")
    weight_decay: float = Field(0.0, ge=0, description="weight decay of the vectors before they are given their length")
    steps: int = Field(1500, ge=1, description="steps on all triples")
    measure_every: int = Field(250, ge=1, description="steps between measurements")


figure = Experiment(
    name="contrastive_tradeoff/invariant_features", figures=("Thm. 7.2",),
    title="Invariant and spurious bits in the representation that contrastive learning finds",
    caption="Dots are seeds. Grey: the same vectors before training.", laptop=BitsConfig(), paper=BitsConfig(),
    grid={"norm": NORMS, "rate": RATES, "seed": [0, 1, 2]},
    sweep_axes={"lr": loguniform(3e-3, 0.3), "width": choice(1, 2, 3, 8), "weight_decay": loguniform(1e-6, 1e-2),
        "norm": choice(*NORMS), "rate": choice(*RATES)}, metric="loss/train", minutes=0.3,
    small={"steps": 6, "measure_every": 3, "norm": [0.3, 3.0], "rate": [0.1, 0.5]},
)


@figure.trial
def run(config: BitsConfig, recorder: Recorder) -> None:
    fair = torch.full((2,), 0.5, dtype=torch.float64)
    second = torch.tensor([1 - config.rate, config.rate], dtype=torch.float64)
    invariant = (fair[:, None] * second).flatten()
    p = (invariant[:, None] * fair).view(2, 2, 2)
    inputs = torch.arange(8)
    task = data.TensorData((inputs, inputs), dtype=config.dtype, name="bits")
    net = nets.SphericalTable(8, config.width, config.norm, seed=config.streams.init, dtype=config.dtype)
    law = (invariant, fair)
    if config.control == "shuffled_pairs":  # nothing is shared: all factors are spurious
        law = (torch.ones(1, dtype=torch.float64), p.flatten())
    loss = learners.enumerated_loss(*law, config.kind)
    optimizer = learners.adam(config.lr, config.weight_decay)
    learner = learners.Supervised(net, loss=loss, optimizer=optimizer, steps_per_batch=config.measure_every)

    def watched(module, x):
        with torch.no_grad():
            H = module.net(x).view(2, 2, 2, -1)
            found = {
                f"encoding/{name}": theory.contrastive_tradeoff.flipped_energy(H, p.to(x.device), axis)
                for name, axis in BITS.items()
            }
            found["spurious"] = theory.contrastive_tradeoff.redrawn_energy(H, p.to(x.device), 2)
            found["loss/train"] = loss(module, (x, x))
        return {name: value.item() for name, value in found.items()}

    watching = [probes.Measure(watched, every=config.measure_every, inputs=(inputs, inputs))]
    fit(learner, task, config, recorder, steps=config.steps, probes=watching)


@figure.cost
def cost(config: BitsConfig):
    return Cost(8 * config.width, 2e3 * config.width * config.steps, 1e5, config.steps)


def over_grid(runs, measure, pick, norms=None):
    return float(pick([measure(runs.where(norm=b, rate=p)) for b in norms or norms_of(runs) for p in rates_of(runs)]))


def norms_of(runs):
    return sorted(runs.values("norm"))


def rates_of(runs):
    return sorted(runs.values("rate"))


def weakest(one):
    return min(one.final(f"encoding/{bit}") for bit in BITS)


def orders(one):
    """How many powers of ten the weakest bit is encoded above the spurious one."""
    return np.log10(weakest(one) / max(one.final("spurious"), 1e-16))  # equal to rounding below that


@figure.claim("c02_spurious_features_are_removed", paper="independent of z_U",
    says="spurious energy E|phi(x) - phi(x+)|^2 / 4B^2 after training (greatest over B and p)", within=(0, 1),
    expect=at_most(1e-3))
def spurious(runs):
    return over_grid(runs, lambda one: one.final("spurious"), max)


@figure.claim("c03_invariant_features_are_encoded", paper="encoded for B ≥ B_i",
    says="encoding strength of each bit at the greatest B (least over bits and p)", within=(0, 1), expect=at_least(0.3))
def encoded(runs):
    return over_grid(runs, weakest, min, norms_of(runs)[-1:])


@figure.claim("c03b_encoded_and_not_spurious", origin="ours",
    says="encoding strength over spurious energy is 1000 or more at the greatest B (log10, least over bits and p)",
    expect=at_least(3))
def ratio(runs):
    return over_grid(runs, orders, min, norms_of(runs)[-1:])


@figure.claim("c03c_thresholds_lie_below", origin="ours",
    says="both bits are encoded at the least B already, 0.3: no threshold B_i shows (encoding strength; over spurious "
    "energy, log10; least over bits and p)", expect={"strength": at_least(0.3), "ratio": at_least(3)})
def no_threshold(runs):
    least = norms_of(runs)[:1]
    return {"strength": over_grid(runs, weakest, min, least), "ratio": over_grid(runs, orders, min, least)}


@figure.draw(cols=3, size=(11, 3.6))
def panels(runs, axes):
    names = {"encoding/z1": "encoding of z₁", "encoding/z2": "encoding of z₂", "spurious": "spurious energy"}
    for axis, (metric, label) in zip(axes[0], names.items(), strict=True):
        for place, (rate, colour) in enumerate(zip(rates_of(runs), CATEGORIES, strict=False)):
            shift = 1.08 ** (place - 1)
            for norm in norms_of(runs):
                some = runs.where(norm=norm, rate=rate)
                found = some.finals(metric)
                before = np.asarray(some.curves(metric).iloc[0])
                shown = f"p = {rate:g}" if norm == norms_of(runs)[0] else None
                axis.plot([norm * shift] * len(before), before, ".", color="#bbbbbb", zorder=1)
                axis.plot([norm * shift] * len(found), np.maximum(found, 1e-16), "o", color=colour, label=shown)
        axis.set(xscale="log", xlabel="norm B", ylabel=label)
        axis.set_xticks(norms_of(runs), [f"{b:g}" for b in norms_of(runs)])
        axis.minorticks_off()
    for axis in axes[0, :2]:
        axis.axhline(0.3, color="#444444", linestyle="--", linewidth=1)
        axis.set(ylim=(0, 1.02))
    axes[0, 2].axhline(1e-3, color="#444444", linestyle="--", linewidth=1)
    axes[0, 2].set(yscale="log")
    axes[0, 0].legend(loc="lower center", ncols=3)
