"""Figures 9.4 and G.1 to G.4 in text. A sentence hidden in a long text, found by every method.

The paper preset hides Kamradt's needle (what to do in San Francisco) in essays, with prompts of up to 60,000 tokens for
Mistral Nemo and 120,000 for LLaMA 3.1 and Phi 3.5, at eleven depths, and keeps 1024 tokens. The score is the F1 of the
answer's words with the needle's (ROUGE-1). Essays are those of the catalogue of public datasets, or any folder of text.

The laptop preset takes the same path, from text to score, with a model that reads words: a small Llama that has learned
to retrieve values by key in up to 147 tokens. The two lengths are the last that it has learned, and one far beyond.
"""

from typing import Literal

from featurelab.pipelines import (
    CATEGORIES,
    Cost,
    Experiment,
    Field,
    above,
    at_least,
    at_most,
    choice,
    data,
    language,
    loguniform,
    np,
    torch,
)
from featurelab.pipelines.gemfilter import retrieval
from featurelab.pipelines.gemfilter.printed import LLAMA, NEEDLE, NEMO, PHI, SHORT
from featurelab.pipelines.gemfilter.retrieval import DECODERS, RetrievalConfig

NAMES = {"full": "all KV", "snapkv": "SnapKV", "gemfilter": "GemFilter", "one_run": "one run", "h2o": "H2O",
    "middle": "middle row", "largest_norm": "row of largest norm", "last": "last k", "random": "random"}  # fmt: skip
FILLER = "paul_graham_essays"
LENGTHS = {NEMO: 60_000, LLAMA: 120_000, PHI: 120_000}


class TextConfig(RetrievalConfig):
    model: str | None = Field(None, description="published model: a folder or a name; none: a stand-in is trained")
    weights: Literal["auto", "float32", "float16", "bfloat16"] = Field(
        "auto", description="type of a published model's numbers; auto: bfloat16 on a GPU, float32 elsewhere"
    )
    chat: bool = Field(True, description="whether prompts go through the model's chat template, if it has one")
    prompt_lengths: tuple[int, ...] = Field((147, 515), description="tokens of a prompt, at most")
    depths: tuple[float, ...] = Field((0.0, 0.25, 0.5, 0.75, 1.0), description="where the needle lies: 0 is far")
    n_each: int = Field(5, ge=1, description="prompts of each length and depth, of other needles for a stand-in")
    answer_tokens: int = Field(2, ge=1, description="tokens of an answer, at most")
    methods: tuple[str, ...] = Field(tuple(NAMES), description="what answers")


_MODELS = [(NEMO, 19), (LLAMA, 13), (LLAMA, 14), (PHI, 19)]
figure = Experiment(
    name="gemfilter/text_haystack", figure="Figs. 9.4, G.1-G.4, text",
    title="A sentence hidden in a text, by the text's length and the sentence's depth",
    caption="Laptop: a small Llama that reads words. Scores by length, means over depths and seeds, bars: range over "
    "seeds.",
    laptop=TextConfig(),
    paper=TextConfig(
        model=NEMO, filter_layer=19, keep=1024, pool="avg", keep_last=0, window=32, n_each=1, answer_tokens=48,
        depths=tuple(place / 10 for place in range(11)), prompt_lengths=tuple(range(10_000, 60_001, 10_000)),
    ),
    grid={"seed": [0, 1, 2]},
    paper_grid={
        ("model", "filter_layer", "prompt_lengths"): [
            (model, layer, tuple(round(LENGTHS[model] * part / 6) for part in range(1, 7))) for model, layer in _MODELS
        ],
        "seed": [0, 1, 2],
    },
    sweep_axes={"lr": loguniform(5e-4, 5e-3), "width": choice(32, 64, 128), "weight_decay": loguniform(1e-4, 1e-1)},
    metric="mean/gemfilter", mode="max", minutes=1.5, needs=(FILLER,),
    stand_in="a small Llama that learns here to retrieve values by key, and reads words, in place of published models",
    small={"lengths": (12, 16), "batch_sizes": (4, 4), "steps": 2, "most_steps": 4, "width": 16, "n_each": 1,
        "prompt_lengths": (40, 60), "depths": (0.0, 1.0)},
)  # fmt: skip


@figure.trial
def run(config, recorder):
    """`score/<method>` at step = tokens of a prompt, in [0, 1], and `mean/<method>`; by depth in the array `depths`."""
    model, prompts, config = (published if config.model else stand_in)(config, recorder)
    tables = {}
    for method in config.methods:
        decoder, rows = made(method, model.net, config), []
        for length in config.prompt_lengths:
            by_depth = []
            for depth in config.depths:
                scores = []
                for hidden, needle in prompts(length, depth):
                    said = language.answered(model, decoder, hidden.text, tokens=config.answer_tokens)
                    scores.append(language.needle_score(said, needle))
                by_depth.append(float(np.mean(scores)))
            rows.append(by_depth)
            recorder.log({f"score/{method}": float(np.mean(by_depth))}, step=length)
        recorder.log({f"mean/{method}": float(np.mean(rows))}, step=0)
        tables[method] = np.array(rows)
    recorder.array("depths", **tables)


def made(method, net, config):
    if method in ("middle", "largest_norm"):
        return retrieval.gemfilter(net, config.keep, config, row=method)
    return DECODERS[method](net, config.keep, config)


def stand_in(config, recorder):
    """The trained model with its words, and prompts: four keys with values among fillers, one of which is asked for."""
    net = retrieval.trained(config, recorder).cpu()
    config = config.but(filter_layer=retrieval.best_layer(config, net))
    recorder.log({"layer/chosen": float(config.filter_layer)}, step=0)
    words = [written(word) for word in data.NEEDLE_WORDS]
    model = language.HubModel(net, language.word_tokenizer(words, words[0]))

    def prompts(length, depth):
        found = retrieval.prompts(config, length, config.n_each, name=f"text {depth}")
        for ids, keys, values in zip(found.prompts, found.keys, found.values, strict=True):
            begins = [place for place, token in enumerate(ids.tolist()[:-1]) if token == keys[0]]
            filler = [*ids[1 : begins[0]].tolist(), *ids[begins[0] + data.NEEDLE : -2].tolist()]
            key, answer = words[keys[0]], " ".join(words[value] for value in values[0])
            needle = language.Needle(f"{key} {answer}", key, answer)
            text = " ".join(words[token] for token in filler)
            asked = "{text} Q {question}"
            yield language.hidden(model, text, needle, length=length, depth=depth, asked=asked), needle

    return model, prompts, config


def written(word: str) -> str:
    """A word of the made-up language in text: in one piece, and with each filler a sentence of its own."""
    return word.replace("_", "") + ("." if word.startswith("filler") else "")


def published(config, _):
    on_gpu = config.device != "cpu" and torch.cuda.is_available()
    model = language.load_model(
        config.model, weights=config.weights, device="cuda" if on_gpu else "cpu", chat=config.chat
    )  # fmt: skip
    essays = [row["text"] for row in data.public_rows(FILLER, "train")]

    def prompts(length, depth):
        rng = data.stream(config.streams.data, f"essays {length} {depth}")
        for _ in range(config.n_each):
            filler = "\n\n".join(essays[index] for index in rng.permutation(len(essays)))
            filler = filler[: 12 * length]  # far more characters than tokens
            yield (
                language.hidden(model, filler, language.DOLORES_PARK, length=length, depth=depth),
                language.DOLORES_PARK,
            )

    return model, prompts, config


@figure.cost
def cost(config):
    if not config.model:
        return retrieval.cost(config)
    parameters, count = 1e10, len(config.depths) * config.n_each * len(config.methods)  # a model of that order
    flops = sum(2 * parameters * n + 4 * 2e5 * n**2 for n in config.prompt_lengths) * count
    memory = 2 * parameters + 2e5 * max(config.prompt_lengths)
    return Cost(int(parameters), flops, memory, 1, data=(FILLER,), models=(config.model,))


def mean(runs, method):
    return runs.final(f"mean/{method}")


def least_gap(runs, first, second):
    """The difference of two methods' means, least over models."""
    return min(
        mean(some, first) - mean(some, second)
        for some in (runs.where(model=model) for model in runs.values("model"))
    )  # fmt: skip


@figure.claim("h1_gemfilter_finds_most", paper="0.910 against 0.864 and 0.851 (Phi 3.5)", where="Figs. 9.4, G.2",
    says="over lengths and depths GemFilter scores higher than SnapKV and than full attention (differences)",
    expect={"SnapKV": above(0), "full": above(0)}, within=(-1, 1))  # fmt: skip
def finds_most(runs):
    return {"SnapKV": least_gap(runs, "gemfilter", "snapkv"), "full": least_gap(runs, "gemfilter", "full")}


@figure.claim("h1b_far_above_what_does_not_look", origin="ours", where="Figs. 9.4, G.2",
    says="and far higher than the last k tokens and random ones (differences)", within=(-1, 1),
    expect={"last": at_least(0.4), "random": at_least(0.4)})  # fmt: skip
def above_null(runs):
    return {name: least_gap(runs, "gemfilter", name) for name in ("last", "random")}


@figure.claim("h2_the_last_row_it_must_be", paper="0.198 and 0.125 against 0.838 (Mistral Nemo)", where="Fig. G.3",
    says="GemFilter's score is at most half as high with the middle row, and with that of the largest norm (ratios)",
    expect={"middle": at_most(0.5), "largest norm": at_most(0.5)}, within=(0, np.inf))  # fmt: skip
def last_row(runs):
    whole = mean(runs, "gemfilter")
    return {"middle": mean(runs, "middle") / whole, "largest norm": mean(runs, "largest_norm") / whole}


@figure.claim("h3_the_second_run_helps", paper="0.838 against 0.827 (Mistral Nemo)", where="Fig. G.4",
    says="with one run the score is lower (difference)", expect=above(0), within=(-1, 1))  # fmt: skip
def second_run(runs):
    return mean(runs, "gemfilter") - mean(runs, "one_run")


@figure.draw(cols=3, size=(12, 3.8))
def panels(runs, axes):
    first = runs.where(model=runs.values("model")[0])
    tables = first.arrays("depths")
    config = first.trials.iloc[0]
    lengths, depths = list(config.prompt_lengths), list(config.depths)
    for axis, name in zip(axes[0], ("full", "gemfilter"), strict=False):
        table = np.mean([each[name] for each in tables], axis=0)
        image = axis.imshow(table.T, vmin=0, vmax=1, cmap="RdYlGn", aspect="auto")
        axis.set_xticks(range(len(lengths)), [f"{n:,}" for n in lengths])
        axis.set_yticks(range(len(depths)), [f"{100 * depth:.0f}" for depth in depths])
        axis.set(xlabel="tokens of the prompt", ylabel="depth (%)", title=f"{NAMES[name]}: {table.mean():.3f}")
        axis.grid(visible=False)
        for (column, row), value in np.ndenumerate(table):
            axis.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=7)
    axis.figure.colorbar(image, ax=axis, label="score")
    right = axes[0, 2]
    methods = [name for name in NAMES if first.has(f"mean/{name}")]
    values = [first.finals(f"mean/{name}") for name in methods]
    places = np.arange(len(methods))[::-1]
    means = np.array([each.mean() for each in values])
    ends = np.array([[m - v.min(), v.max() - m] for m, v in zip(means, values, strict=True)]).T.clip(min=0)
    right.barh(places, means, xerr=ends, color=CATEGORIES[0], height=0.6, error_kw={"linewidth": 1})
    shown = set()
    for model, marker in zip(SHORT, "osD", strict=True):
        for name, value in NEEDLE[model].items():
            if name in methods:
                label = None if model in shown else f"paper, {SHORT[model]}"
                right.plot(value, places[methods.index(name)], marker, color=CATEGORIES[1], markersize=4, label=label)
                shown.add(model)
    right.set_yticks(places, [NAMES[name] for name in methods])
    right.set(xlabel="mean score", xlim=(0, 1.03), title="all methods")
    right.legend(loc="upper center", bbox_to_anchor=(0.45, -0.2), ncols=3)
