"""All networks. Every instrument that carries over, on one network of each system, trained as its own figure trains it.

Each instrument came with one paper and was shown on that paper's networks. Here all of them are taken on one network of
every system, before and after the training of one of its figures: collapse of the classes, spectra of features and
weights, alignment of weights with tangent features, and the AGOP in the inputs. What does not exist for a network stays
empty: collapse without classes, gradients in tokens, features where no layer has any.

After what the papers say of their networks, training should contract classes, align weights with tangent features and
narrow the gradients in the inputs. We ask each of all networks that have the quantity.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

from featurelab.pipelines import (
    CATEGORIES, Experiment, Field, Observed, Recorder, TrainedConfig, above, below, choice, loguniform, np, probes,
)

INSTRUMENTS = {"nc1": "NC1 of the features", "feature_rank": "rank of the features", "weight_rank": "rank of weights",
    "nfa": "UC-NFA", "cnfa": "C-NFA", "ptk_dispersion": "dispersion of K", "input_agop_rank": "rank of the input AGOP"}
WEIGHTS = ("weight_rank", "nfa", "cnfa", "ptk_dispersion")


@dataclass(frozen=True)
class Network:
    """The figure whose network it is, settings that replace its own, where its features are, what can be measured."""

    figure: str
    settings: dict[str, Any] = field(default_factory=dict)
    places: dict[str, Any] = field(default_factory=dict)
    has: tuple[str, ...] = tuple(INSTRUMENTS)


def without(*names: str) -> tuple[str, ...]:
    return tuple(name for name in INSTRUMENTS if name not in names)


NETWORKS = {
    "neural_feature_ansatz": Network("init_scale", {"steps": 1000}, has=without("nc1")),  # targets are monomials
    "alignment_elasticity": Network("metric_learning", {"epochs": 10}),
    "deep_neural_collapse": Network("mlp", {"epochs": 200}),
    "fine_grained_structure": Network("coarse_mixture", {"epochs": 30}),
    "nuclear_norm_dg": Network("strength", {"steps": 400}),
    "fourier_circuits": Network("grokking", {"steps": 600}, has=without("input_agop_rank")),  # tokens
    "gradient_features": Network("train_mixture"),
    "input_structure": Network("hidden_labels", {"steps": 300}),
    "looped_transformer": Network("preconditioner", has=("input_agop_rank",)),  # one matrix, in no layer
    # its layers read the prompt itself: there are no features between
    "icl_scale": Network(
        "trained_rank", {"n_train": 768_000, "steps": 3000}, {"hidden": "query"}, has=without("nc1", "feature_rank"),
    ),
    # pairs of pictures have no labels; the representation is the output
    "contrastive_tradeoff": Network(
        "unions", {"epochs": 20}, {"readout": "", "view": lambda pairs: pairs[:, 0]},
        has=without("nc1"),
    ),
    # of each prompt many tokens are predicted: one has no features of its own, and tokens have no gradients
    "gemfilter": Network(
        "haystack", {"test_lengths": (24, 48), "n_test": 10}, {"view": lambda ids: ids[:4]}, has=WEIGHTS
    ),
}
SYSTEMS = list(NETWORKS)
GIVEN = ("lr", "width", "weight_decay", "precision")  # passed on to the figure where they are set


class EverySystemConfig(TrainedConfig):
    network: Literal["neural_feature_ansatz", "alignment_elasticity", "deep_neural_collapse", "fine_grained_structure",
        "nuclear_norm_dg", "fourier_circuits", "gradient_features", "input_structure", "looped_transformer",
        "icl_scale", "contrastive_tradeoff", "gemfilter"] = Field("neural_feature_ansatz",
        description="the system whose network it is")
    precision: Literal["64-true", "32-true", "bf16-mixed"] | None = Field(None,  # type: ignore[assignment]
        description="Lightning precision; none: the figure's")
    lr: float | None = Field(None, gt=0, description="learning rate; none: the figure's")
    width: int | None = Field(None, ge=1, description="width; none: the figure's")
    weight_decay: float | None = Field(None, ge=0, description="weight decay; none: the figure's")
    brief: bool = Field(False, description="whether the network has the small sizes of a check")


figure = Experiment(
    name="cross/every_system", part="All networks", title="Every instrument on one network of each system",
    caption="Grey: before training; coloured: after it. Means over seeds, lines their range. Ranks are effective ranks "
    "over the greatest possible. What a network does not have stays empty.", laptop=EverySystemConfig(),
    paper=EverySystemConfig(), grid={"network": SYSTEMS, "seed": [0, 1, 2]},
    sweep_axes={"lr": loguniform(1e-3, 0.1), "width": choice(32, 64, 128), "weight_decay": loguniform(1e-6, 1e-2)},
    metric="after/nfa", mode="max", minutes=2, small={"brief": True, "network": SYSTEMS},
)


def observed(config: EverySystemConfig):
    network = NETWORKS[config.network]
    given = {key: getattr(config, key) for key in GIVEN if getattr(config, key) is not None}
    own = {} if config.brief else network.settings
    same = {"seed": config.seed, "threads": config.threads, "device": config.device}
    return Observed(f"{config.network}/{network.figure}", small=config.brief, **own | given | same)


@figure.trial
def run(config: EverySystemConfig, recorder: Recorder) -> None:
    network = NETWORKS[config.network]
    probe = probes.InstrumentsProbe(every=10**9, quantities=network.has, **network.places)
    observed(config).run([probe], recorder)
    (_, before), *_, (last, after) = probe.history
    recorder.log({f"before/{name}": value for name, value in before.items()}, step=0)
    recorder.log({f"after/{name}": value for name, value in after.items()}, step=last)
    if probe.skipped:
        recorder.tags({"skipped/InstrumentsProbe": "; ".join(f"{name}: {why}" for name, why in probe.skipped.items())})


@figure.cost
def cost(config: EverySystemConfig):
    return observed(config).cost()


# symmetric networks, whose output is 0 before training: gradients are rounding errors there
SILENT = dict.fromkeys(("nfa", "ptk_dispersion", "input_agop_rank"), ("gradient_features", "input_structure"))


def having(name):
    """The networks that have a quantity before training too."""
    return [system for system in SYSTEMS if name in NETWORKS[system].has and system not in SILENT.get(name, ())]


def compared(runs, name, compare):
    """compare(after, before) of a quantity, for each network that has it."""
    return {system: compare(runs.final(f"after/{name}", network=system), runs.final(f"before/{name}", network=system))
        for system in having(name)}


@figure.claim("x7_classes_contract", origin="ours",
    says="training contracts the classes of each network that has classes (NC1 after training less NC1 before)",
    expect=dict.fromkeys(having("nc1"), below(0)))
def classes_contract(runs):
    return compared(runs, "nc1", lambda after, before: after - before)


@figure.claim("x8_weights_align", origin="ours", says="training aligns the weights before the features with their "
    "tangent features (UC-NFA after training less UC-NFA before)", expect=dict.fromkeys(having("nfa"), above(0)))
def weights_align(runs):
    return compared(runs, "nfa", lambda after, before: after - before)


@figure.claim("x9_gradients_narrow", origin="ours",
    says="training narrows the gradients in the inputs (effective rank of the AGOP after training over that before)",
    expect=dict.fromkeys(having("input_agop_rank"), below(1)))
def gradients_narrow(runs):
    return compared(runs, "input_agop_rank", lambda after, before: after / before)


@figure.draw(cols=len(INSTRUMENTS), size=(15, 4.4))
def panels(runs, axes):
    for axis, (name, title), colour in zip(axes[0], INSTRUMENTS.items(), CATEGORIES[:5] * 2, strict=False):
        for row, system in ((row, system) for row, system in enumerate(SYSTEMS) if name in NETWORKS[system].has):
            for when, tint, shift in (("before", CATEGORIES[5], 0.14), ("after", colour, -0.14)):
                if (name != "cnfa" and system not in SILENT.get(name, ())) or when == "after":
                    values = runs.finals(f"{when}/{name}", network=system)
                    axis.plot([min(values), max(values)], [row + shift] * 2, color=tint, linewidth=1.5)
                    axis.plot(np.mean(values), row + shift, "o", color=tint, markersize=5)
        axis.set(title=title, ylim=(len(SYSTEMS) - 0.5, -0.5), yticks=range(len(SYSTEMS)))
        axis.set_yticklabels(SYSTEMS if axis is axes[0, 0] else [])
        if name in ("nc1", "ptk_dispersion"):
            axis.set_xscale("log")
        else:
            axis.set_xlim(-0.03, 1.03)
