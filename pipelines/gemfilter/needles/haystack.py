"""Figures 9.4, G.1 and G.2. Models find a needle in prompts that are shortened to k tokens.

GemFilter runs r layers on the n tokens of a prompt, keeps the k tokens with the greatest products of the last query
with the keys of layer r, summed over heads and pooled, and lets the whole model read these k tokens alone. The paper
scores answers over prompt lengths and depths of the needle.

The paper preset hides a sentence in essays and asks Mistral Nemo; `--over model=... filter_layer=...` asks other
models. The laptop preset trains a Llama of 0.16 million parameters to retrieve from up to 144 tokens. A needle is "key
v1 v2", the question "Q key", and each prompt has three more needles with other keys. With k = 16 a choice that ignores
the question and leaves fillers out keeps all four needles; k = 8 shows what selection by the question adds.

The figures on layers, rows, runs, index maps and pooling read these trials.
"""

from featurelab.pipelines import CATEGORIES, Experiment, above, at_least, at_most, choice, loguniform, np
from featurelab.pipelines.gemfilter.needles.measuring import CONTROLS, HaystackConfig, cost, run
from featurelab.pipelines.gemfilter.retrieval import MARKS

TINY = {"width": 16, "heads": 2, "layers": 2, "lengths": (12, 18), "batch_sizes": (4, 2), "steps": 1, "most_steps": 3,
    "warmup": 1, "test_lengths": (18, 24, 30, 40), "n_test": 5}
NAMES = {"full": "all KV", "gemfilter": "GemFilter", "snapkv": "SnapKV", "h2o": "H2O", "one_run": "One-Run",
    "last": "last k tokens", "random": "random tokens"}
PHI = {"full": 0.851, "snapkv": 0.864, "gemfilter": 0.910}  # figure G.2

figure = Experiment(
    name="gemfilter/haystack", figures=("Fig. 9.4", "Fig. G.1", "Fig. G.2"),
    published={"Fig. 9.4": "Fig. 4", "Fig. G.1": "Fig. 8", "Fig. G.2": "Fig. 7"},
    title="Answers from shortened prompts",
    caption="Share of prompts answered with both values of the needle, k = 16 tokens kept, max pooling, the last two "
    "tokens always kept. Means over seeds. Trained on at most 144 tokens of content.", laptop=HaystackConfig(),
    paper=HaystackConfig(model="mistralai/Mistral-Nemo-Instruct-2407", size=12.2, layers=40, width=5120, heads=32,
        filter_layer=20, keep=1024, few=(64, 100), pool="avg", keep_last=0, window=32, rivals="authors", n_test=11,
        test_lengths=(10_000, 20_000, 30_000, 40_000, 50_000, 60_000), depths=tuple(i / 10 for i in range(11))),
    grid={"seed": [0, 1, 2]}, needs=("paul_graham_essays",),
    sweep_axes={"lr": loguniform(5e-4, 5e-3), "width": choice(32, 64, 96, 128), "weight_decay": loguniform(1e-4, 1.0)},
    metric="accuracy/gemfilter", mode="max", minutes=2, controls=CONTROLS, small=TINY,
    stand_in="a small Llama that learned to retrieve keyed needles, in place of published models and essays",
)
figure.trial(run)
figure.cost(cost)


def shade_needles(axis, maps):
    """Shade the needles of a prompt: the one that is asked for in blue, the others in grey."""
    asked = maps["needle"][:1]
    others = [begin for begin in maps["needles"] if begin != asked[0]]
    looks = (asked, "needle asked for", CATEGORIES[0], 0.45), (others, "other needles", CATEGORIES[5], 0.25)
    for needles, label, color, alpha in looks:
        for begin in needles:
            axis.axvspan(begin - 0.5, begin + 2.5, linewidth=0, color=color, alpha=alpha, label=label)
            label = ""  # each once


def settings(runs, name):
    """The value of a setting, the same in all trials."""
    first = runs.trials[name].iloc[0]
    return tuple(first) if isinstance(first, list) else first


def steps(runs):
    """Tokens of the prompts of each length; a stand-in's question comes on top of the content."""
    question = 0 if isinstance(settings(runs, "model"), str) else MARKS
    return [length + question for length in settings(runs, "test_lengths")]


def usual(runs):
    """Tokens of a prompt of the greatest trained length."""
    return steps(runs)[1]


def longest(runs):
    return steps(runs)[-1]


@figure.claim("c01_all_kept_is_all", kind="identity", paper="by construction", says="when k is at least the prompt's "
    "length, GemFilter, SnapKV, H2O and One-Run write the same tokens as the plain model (tokens that differ)",
    expect={"gemfilter": at_most(0), "snapkv": at_most(0), "h2o": at_most(0), "one_run": at_most(0)})
def same(runs):
    return {name: runs.final(f"differs/{name}") for name in ("gemfilter", "snapkv", "h2o", "one_run")}


@figure.claim("c04_accuracy_is_preserved", where="Table 9.1", paper="LongBench 36.09 and 34.50 against 36.72",
    says="at a trained length the model answers nearly all prompts (share), and GemFilter with a ninth of the tokens "
    "at most 0.05 fewer (difference; laptop k = 16, max pooling, keep_last 2)",
    expect={"full": at_least(0.95), "difference": at_least(-0.05)}, within=(-1, 1))
def preserved(runs):
    full = runs.at("accuracy/full", usual(runs))
    return {"full": full, "difference": runs.at("accuracy/gemfilter", usual(runs)) - full}


@figure.claim("c04b_with_ten_tokens", origin="ours", paper="LongBench 36.09 and 34.50 against 36.72",
    says="at a trained length the model answers nearly all prompts (share), and GemFilter with k = 10, where not all "
    "needles fit in, at most 0.05 fewer (difference; max pooling, keep_last 2)", where="Table 9.1",
    expect={"full": at_least(0.95), "difference": at_least(-0.05)}, within=(-1, 1))
def preserved_with_few(runs):
    full = runs.at("accuracy/full", usual(runs))
    return {"full": full, "difference": runs.at("few/gemfilter", settings(runs, "few")[1]) - full}


@figure.claim("c05_beyond_the_trained_length", paper="0.910 > 0.864 > 0.851 (Phi 3.5), GemFilter best in Fig. 9.4",
    says="at 3.5 times the trained length GemFilter answers more often than SnapKV, and SnapKV no less often than the "
    "model with all keys and values (differences; laptop k = 16, max pooling, keep_last 2)",
    expect={"GemFilter": above(0), "SnapKV": at_least(0)})
def beyond(runs):
    full, snapkv, gemfilter = (runs.at(f"accuracy/{name}", longest(runs)) for name in ("full", "snapkv", "gemfilter"))
    return {"GemFilter": gemfilter - snapkv, "SnapKV": snapkv - full}


@figure.claim("c06_h2o_is_worst", paper="LongBench 33.63 against 36.44 and 36.09", says="at a trained length H2O "
    "answers fewer prompts than SnapKV and than GemFilter (differences; laptop k = 16, max pooling, keep_last 2)",
    where="Table 9.1", expect={"SnapKV": above(0), "GemFilter": above(0)})
def h2o(runs):
    worst = runs.at("accuracy/h2o", usual(runs))
    return {name: runs.at(f"accuracy/{name.lower()}", usual(runs)) - worst for name in ("SnapKV", "GemFilter")}


@figure.claim("c06b_h2o_with_few", origin="ours", says="with k = 8, at a trained length, H2O answers fewer prompts "
    "than SnapKV and than GemFilter (differences)", where="Fig. 9.4",
    expect={"SnapKV": above(0), "GemFilter": above(0)})
def h2o_few(runs):
    least = settings(runs, "few")[0]
    worst = runs.at("few/h2o", least)
    return {name: runs.at(f"few/{name.lower()}", least) - worst for name in ("SnapKV", "GemFilter")}


@figure.claim("c09_random_tokens_do_not_do", origin="ours", says="given random tokens and the question, the model "
    "answers almost no prompt, at the trained length and beyond (greatest share; k = 16)", expect=at_most(0.05),
    within=(0, 1))
def random(runs):
    return max(runs.at("accuracy/random", step) for step in (usual(runs), longest(runs)))


@figure.claim("c09b_better_than_the_last_tokens", origin="ours", says="GemFilter answers far more prompts than the "
    "model does from the last k tokens, at the trained length and beyond (least difference of shares; k = 16)",
    expect=at_least(0.6))
def better_than_last(runs):
    steps = usual(runs), longest(runs)
    return min(runs.at("accuracy/gemfilter", step) - runs.at("accuracy/last", step) for step in steps)


@figure.draw(rows=2, cols=4, size=(11.5, 5.6))
def panels(runs, axes):
    by_depth = runs.arrays("depths")
    lengths, depths = steps(runs), settings(runs, "depths")
    *grids, last = axes.flat
    for axis, (name, label) in zip(grids, NAMES.items(), strict=True):
        mean = np.mean([arrays[name] for arrays in by_depth], axis=0)
        axis.imshow(mean.T, cmap="RdYlGn", vmin=0, vmax=1, aspect="auto")
        axis.grid(visible=False)
        for i, j in np.ndindex(*mean.shape):
            colour = "white" if not 0.2 < mean[i, j] < 0.85 else "black"
            axis.text(i, j, f"{mean[i, j]:.2f}", ha="center", va="center", fontsize=7, color=colour)
        axis.set_xticks(range(len(lengths)), [f"{n / 1000:g}k" if n >= 10_000 else str(n) for n in lengths])
        axis.set_yticks(range(len(depths)), [f"{100 * d:.0f}%" for d in depths])
        axis.set(title=f"{label}, mean {mean.mean():.3f}", xlabel="tokens of the prompt")
    for row in axes:
        row[0].set_ylabel("depth of the needle")
    places = np.arange(len(PHI))
    measured = [np.mean([arrays[name].mean() for arrays in by_depth]) for name in PHI]
    last.bar(places - 0.2, measured, 0.38, color=CATEGORIES[0], label="small Llama")
    last.bar(places + 0.2, list(PHI.values()), 0.38, color=CATEGORIES[5], label="Phi 3.5, printed")
    last.set_xticks(places, [NAMES[name] for name in PHI])
    last.set(ylim=(0, 1.25), ylabel="score over lengths and depths", title="Mean of the grid")
    last.legend(loc="upper center", ncols=2, fontsize=7, columnspacing=0.8, handlelength=1.2)
