"""Tables 9.1, 9.2 and G.1. Models solve long tasks with k tokens kept, by method and by filter layer.

The paper preset runs the fourteen English tasks of LongBench on the paper's three models: GemFilter, SnapKV and H2O
with 1024 to 4096 tokens, without a chat template (Table 9.1), by filter layer (9.2), and six tasks with it (G.1). Our
prompts are worded differently, so averages compare methods but do not match the tables to the digit. MInference and
LLMLingua are not run.

The laptop preset has no text. Its tasks are families of prompts of one length and number of needles ("96x4"), answered
by a small Llama that learned four needles in up to 144 tokens. It says nothing about quality on LongBench.
"""

from typing import Any, Literal

from featurelab.pipelines import (
    CATEGORIES, Cost, Experiment, Field, Missing, Recorder, above, at_least, bars, bound_level, choice, data, language,
    legend_below, loguniform, np, torch,
)
from featurelab.pipelines.gemfilter import retrieval
from featurelab.pipelines.gemfilter.printed import (
    FILTER_LAYERS, KEEPS, LAYERS, LLAMA, QUESTIONS, SHORT, TABLE_9_1, TABLE_9_2, TABLE_G_1,
)
from featurelab.pipelines.gemfilter.retrieval import DECODERS, RetrievalConfig, right

TASKS = ("narrativeqa", "qasper", "multifieldqa_en", "hotpotqa", "2wikimqa", "musique", "gov_report", "qmsum",
    "multi_news", "trec", "triviaqa", "samsum", "passage_count", "passage_retrieval_en")
NAMES = {"full": "all KV", "gemfilter": "GemFilter", "snapkv": "SnapKV", "h2o": "H2O", "last": "last k tokens",
    "random": "random tokens"}
POINTS = (-100, 100)  # in which averages lie, and their differences
ALL = 0  # stands for k with full attention, which keeps all tokens


class LongConfig(RetrievalConfig):
    model: str | None = Field(None, description="published model: a folder or a name; none: a stand-in is trained")
    weights: Literal["auto", "float32", "float16", "bfloat16"] = Field("auto",
        description="type of a published model's numbers; auto: bfloat16 on a GPU, float32 elsewhere")
    chat: bool = Field(False, description="whether prompts go through the model's chat template")
    tasks: tuple[str, ...] = Field((), description="tasks of LongBench; of a stand-in, families of prompts")
    longest: int = Field(120_000, ge=2, description="tokens of a prompt; longer ones lose their middle")
    methods: tuple[str, ...] = Field(tuple(NAMES), description="methods that keep k tokens, or full")
    keeps: tuple[int, ...] = Field((8, 16, 32), description="tokens kept, k")
    filter_layers: tuple[int, ...] = Field((), description="further filter layers of GemFilter, with the least k")
    n_test: int = Field(60, ge=1, description="rows of each task, at most as many as it has")


FAMILIES = ("96x4", "144x2", "144x4", "144x8", "256x4")
LAPTOP = LongConfig(tasks=FAMILIES, filter_layers=(1, 2, 3, 4))
PAPER = LongConfig(model=LLAMA, tasks=TASKS, keeps=(1024,), filter_layer=FILTER_LAYERS[LLAMA], pool="avg", keep_last=0,
    window=32, rivals="authors", n_test=200)
_VARIED = ("model", "filter_layer", "chat", "tasks", "methods", "keeps", "filter_layers")
_ROWS: list[tuple[Any, ...]] = [
    (model, layer, False, TASKS, (method,), (keep,), ())
    for model, layer in FILTER_LAYERS.items()
    for method, keep in [("full", ALL), ("h2o", KEEPS[-1]), *((m, k) for m in ("snapkv", "gemfilter") for k in KEEPS)]
]
_ROWS += [(LLAMA, FILTER_LAYERS[LLAMA], False, TASKS, (), (KEEPS[0],), (layer,)) for layer in TABLE_9_2]
_ROWS += [(LLAMA, FILTER_LAYERS[LLAMA], True, QUESTIONS, (method,), (keep,), ())
    for method, keep in (("full", ALL), ("snapkv", KEEPS[0]), ("gemfilter", KEEPS[0]))]

figure = Experiment(
    name="gemfilter/longbench", figures=("Table 9.1", "Table 9.2", "Table G.1"),
    published={"Table 9.1": "Table 1", "Table 9.2": "Table 2"},
    title="Long tasks against the number of tokens that are kept, and against the filter layer",
    caption="Laptop: families of prompts (tokens x needles) answered by a small Llama, in place of LongBench. Means "
    "over seeds and their range; the best layer differs between seeds. With a chat template the paper reports "
    f"{TABLE_G_1['gemfilter']} for GemFilter, {TABLE_G_1['snapkv']} for SnapKV and {TABLE_G_1['full']} for all KV.",
    laptop=LAPTOP, paper=PAPER, grid={"seed": [0, 1, 2]}, paper_grid={_VARIED: _ROWS, "seed": [0, 1, 2]},
    sweep_axes={"lr": loguniform(5e-4, 5e-3), "width": choice(32, 64, 128), "weight_decay": loguniform(1e-4, 1e-1)},
    metric="average/gemfilter", mode="max", minutes=1.5, needs=tuple(f"longbench_{task}" for task in TASKS),
    stand_in="families of needle prompts, answered by a small Llama that is trained here, in place of LongBench",
    small={"lengths": (12, 16), "batch_sizes": (4, 4), "steps": 2, "most_steps": 4, "width": 16, "n_test": 3,
        "tasks": ("24x4", "27x8"), "keeps": (8, 16)},
)


@figure.trial
def run(config: LongConfig, recorder: Recorder) -> None:
    """`average/<method>` and `task/<task>/<method>` at step k, `layer_average/gemfilter` at step r: points of 100."""
    answer, model, config = on_texts(config, config.model) if config.model else on_families(config, recorder)
    for keep in config.keeps:
        for method in config.methods:
            if method != "full" or keep == config.keeps[0]:
                decoder = DECODERS[method](model, keep, config)
                step = ALL if method == "full" else keep
                scored(config, recorder, answer, decoder, method, step)
    for layer in config.filter_layers:
        decoder = DECODERS["gemfilter"](model, config.keeps[0], config.but(filter_layer=layer))
        scored(config, recorder, answer, decoder, "gemfilter", layer, group="layer_")


def scored(config: LongConfig, recorder: Recorder, answer, decoder, method, step, group=""):
    points = {task: 100 * answer(task, decoder) for task in config.tasks}
    values = {f"{group}task/{task}/{method}": value for task, value in points.items()}
    kind = f"{'chat_' if config.chat else ''}{group}average"
    recorder.log(values | {f"{kind}/{method}": float(np.mean(list(points.values())))}, step=step)


def on_families(config: LongConfig, recorder: Recorder):
    model = retrieval.trained(config, recorder).cpu()
    layer = retrieval.best_layer(config, model)
    config = config.but(filter_layer=layer)
    recorder.log({"layer/chosen": float(layer)}, step=0)
    families = {}
    for family in config.tasks:
        length, needles = map(int, family.split("x"))
        families[family] = retrieval.prompts(config.but(n_needles=needles), length, config.n_test, name=family)

    def answer(family, decoder):
        with torch.no_grad():
            return right(decoder, families[family]).double().mean().item()

    return answer, model, config


def on_texts(config: LongConfig, name: str):
    on_gpu = config.device != "cpu" and torch.cuda.is_available()
    model = language.load_model(name, weights=config.weights, device="cuda" if on_gpu else "cpu", chat=config.chat)
    longest = min(config.longest, model.longest or config.longest)

    def answer(name, decoder):
        task = language.LONGBENCH[name]
        rows = data.text_rows(task.source, "test")
        chosen = data.stream(config.streams.data, name).permutation(len(rows))[: config.n_test]
        points = []
        for index in chosen:
            text = language.long_prompt(model, task, rows[index], longest=longest - task.tokens)
            said = language.decoded_answer(model, decoder, text, tokens=task.tokens)
            points.append(language.long_score(task, said, rows[index]))
        return float(np.mean(points))

    return answer, model.net, config


@figure.cost
def cost(config: LongConfig):
    if not config.model:
        return retrieval.cost(config)
    parameters, tokens = 1e10, 1e4  # the order of the paper's models; prompts have 9,000 tokens on average
    flops = 2 * parameters * tokens * config.n_test * len(config.tasks)
    needed = tuple(f"longbench_{task}" for task in config.tasks)  # `LongTask.source`, without an import of torch
    return Cost(int(parameters), flops, 2e10 + 2e5 * config.longest, 1, data=needed, models=(config.model,))


def averages(runs, method):
    """By model, the averages of a method by k, ascending."""
    by_model = {model: runs.where(model=model) for model in runs.values("model")}
    metric = f"average/{method}"
    curves = {model: own.curve(metric).sort_index() for model, own in by_model.items() if own.has(metric)}
    if not curves:
        raise Missing(f"no average of {method}")
    return curves


def ends(runs, method, other, place):
    """Least over models of the difference of two methods' averages at the first or last k of each."""
    first, second = averages(runs, method), averages(runs, other)
    return min(float(first[model].iloc[place] - second[model].iloc[place]) for model in first)


@figure.claim("l1_little_is_lost", where="Table 9.1", paper="36.09, 46.79, 33.35 against 36.72, 46.36, 34.62",
    says="with the largest k GemFilter's average is at most 1.5 points below full attention's (least difference over "
    "models), whose own is at least 30 points", expect={"difference": at_least(-1.5), "full": at_least(30)},
    within=POINTS)
def little_is_lost(runs):
    return {"difference": ends(runs, "gemfilter", "full", -1), "full": level(runs)}


def level(runs):
    """Full attention's average, least over models; the paper's lowest is 34.62."""
    return min(float(each.iloc[-1]) for each in averages(runs, "full").values())


@figure.claim("l1b_where_there_is_something_to_lose", where="Table 9.1", origin="ours",
    says="full attention averages at least 50 points, and with the largest k both the last tokens and random tokens "
    "lose more than half of its average (points lost beyond half)",
    expect={"full": at_least(50), "last": above(0), "random": above(0)}, within=POINTS)
def something_to_lose(runs):
    whole = averages(runs, "full")
    return {"full": level(runs)} | {
        name: min(float(whole[m].iloc[-1] / 2 - each.iloc[-1]) for m, each in averages(runs, name).items())
        for name in ("last", "random")
    }


@figure.claim("l2_h2o_falls_behind", where="Table 9.1", paper="33.63 against 36.44 and 36.09 (LLaMA)",
    says="with the largest k H2O's average is below SnapKV's and GemFilter's (differences, least over models)",
    expect={"snapkv": above(0), "gemfilter": above(0)}, within=POINTS)
def h2o_behind(runs):
    return {name: ends(runs, name, "h2o", -1) for name in ("snapkv", "gemfilter")}


@figure.claim("l3_on_par_with_snapkv", where="Table 9.1", paper="34.50, 45.14, 32.74 against 35.25, 44.71, 33.68",
    says="with the least k GemFilter's average is at most 1.5 points below SnapKV's (least difference over models), "
    "and full attention's own is at least 30 points", expect={"difference": at_least(-1.5), "full": at_least(30)},
    within=POINTS)
def on_par(runs):
    return {"difference": ends(runs, "gemfilter", "snapkv", 0), "full": level(runs)}


@figure.claim("l4_more_tokens_help", where="Table 9.1", paper="34.50 to 36.09, 45.14 to 46.79, 32.74 to 33.35",
    says="GemFilter's average is higher with the largest k than with the least (least difference over models)",
    expect=above(0), within=POINTS)
def more_help(runs):
    return min(float(each.iloc[-1] - each.iloc[0]) for each in averages(runs, "gemfilter").values())


@figure.claim("t1_the_best_layer_lies_between", where="Table 9.2", paper="34.50 against 23.50 and 30.04",
    says="the best filter layer is neither the first nor the last that is tried (best average between them less the "
    "better of theirs, points)", expect=above(0), within=POINTS)
def between_layers(runs):
    curve = runs.curve("layer_average/gemfilter").sort_index()
    return float(curve.iloc[1:-1].max() - max(curve.iloc[0], curve.iloc[-1]))


@figure.claim("t2_by_much", where="Table 9.2", paper="34.50 against 23.50", origin="ours",
    says="the average with the best filter layer between the first and the last is far above the first's (difference, "
    "points)", expect=at_least(11.0), within=POINTS)
def by_much(runs):
    curve = runs.curve("layer_average/gemfilter").sort_index()
    return float(curve.iloc[1:-1].max() - curve.iloc[0])


@figure.draw(cols=3, size=(12, 3.7))
def panels(runs, axes):
    first = runs.where(model=runs.values("model")[0])
    left, middle, right_axis = axes[0]
    methods = [name for name in NAMES if name != "full" and first.has(f"average/{name}")]
    for name in methods:
        colour = CATEGORIES[list(NAMES).index(name)]
        bars(left, first.curves(f"average/{name}"), color=colour, label=NAMES[name])
    if first.has("average/full"):
        bound_level(left, first.final("average/full"), NAMES["full"], color=CATEGORIES[0])
    keeps = sorted({int(keep) for each in first.values("keeps") for keep in each} - {ALL})
    left.set_xscale("log", base=2)
    left.set_xticks(keeps, [str(keep) for keep in keeps])
    left.minorticks_off()
    left.set(xlabel="tokens kept, k", ylabel="average (points)", title="here", ylim=(-3, 103))
    legend_below(left, 3)
    for model, marker in zip(SHORT, "osD", strict=True):
        for name in ("gemfilter", "snapkv", "h2o"):
            printed = TABLE_9_1[model][name]
            middle.plot(list(printed), list(printed.values()), color=CATEGORIES[list(NAMES).index(name)], marker=marker,
                        markersize=4, linewidth=1)
        bound_level(middle, TABLE_9_1[model]["full"][ALL], color=CATEGORIES[0])
        middle.plot([], [], color="black", marker=marker, linestyle="none", markersize=4, label=SHORT[model])
    middle.set_xscale("log", base=2)
    middle.set_xticks(KEEPS, [str(keep) for keep in KEEPS])
    middle.minorticks_off()
    middle.set(xlabel="tokens kept, k", title="the paper, LongBench (Table 9.1)", ylim=(28, 50))
    legend_below(middle, 3)
    by_layer = first.curves("layer_average/gemfilter")
    count = max(by_layer.index)
    bars(right_axis, by_layer, [layer / count for layer in by_layer.index], color=CATEGORIES[1], label="here, r/m")
    right_axis.plot([layer / LAYERS for layer in TABLE_9_2], TABLE_9_2.values(), color=CATEGORIES[5], marker="o",
                    markersize=3.5, linestyle="--", label="paper, LLaMA 3.1 (Table 9.2)")
    right_axis.set(xlabel="filter layer over layers, r/m", ylim=(-3, 103), title="by filter layer")
    legend_below(right_axis, 2)
