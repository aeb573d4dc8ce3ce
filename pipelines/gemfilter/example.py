"""Figure 9.1. The tokens that one layer selects are the instruction, the message and the question, and they suffice.

The paper shows one prompt of 108,172 tokens. Of these the filter layer of LLaMA 3.1 8B selects 100, among them the
initial instruction, the hidden sentence and the question. From these 100 tokens alone the model answers correctly. The
paper preset repeats this with the printed settings.

The laptop preset trains a Llama of 0.16 million parameters to retrieve. Its prompts have 515 tokens, of which 8 are
kept: the instruction is the token that begins every prompt, the message a needle "key v1 v2", and the question "Q key".
GemFilter runs with max pooling and the last two tokens always kept, and once more as printed.
"""

from typing import Any, Literal

from featurelab.pipelines import (
    CATEGORIES, Cost, Experiment, Field, Recorder, above, at_least, choice, data, decoding, language, loguniform, np,
    torch,
)
from featurelab.pipelines.gemfilter import retrieval
from featurelab.pipelines.gemfilter.printed import FILTER_LAYERS, LLAMA
from featurelab.pipelines.gemfilter.retrieval import RetrievalConfig
from featurelab.pipelines.gemfilter.texts import CHARACTERS, ESSAYS, SAID

PARTS = ("instruction", "needle", "question")
WAYS = {"gemfilter": "selected", "printed": "selected as printed"}
ASKED = "Read this book, and answer the question at its end.\n\n{text}\n\nQuestion: {question}\nAnswer:"


class ExampleConfig(RetrievalConfig):
    model: str | None = Field(None, description="published model: a folder or a name; none: a stand-in is trained")
    weights: Literal["auto", "float32", "float16", "bfloat16"] = Field("auto",
        description="type of a published model's numbers; auto: bfloat16 on a GPU, float32 elsewhere")
    size: float = Field(0.00016, gt=0, description="parameters of a published model in billions")
    n_prompt: int = Field(515, ge=20, description="tokens of a prompt")
    keep: int = Field(8, ge=1, description="k: tokens that are kept of a prompt")
    depth: float = Field(0.5, ge=0, le=1, description="where the needle lies: 0 at the beginning, 1 at the question")
    n_test: int = Field(50, ge=1, description="prompts; the first one is drawn")


figure = Experiment(
    name="gemfilter/example", figures=("Fig. 9.1",), published={"Fig. 9.1": "Fig. 1"},
    title="What one layer selects of a prompt, and the answer to it",
    caption="Each tick is a token that is kept of one prompt; below, these tokens in their order, coloured by the part "
    "of the prompt from which they come, and the answer from them alone.", laptop=ExampleConfig(),
    paper=ExampleConfig(model=LLAMA, size=8.03, layers=32, width=4096, heads=32, filter_layer=FILTER_LAYERS[LLAMA],
        n_prompt=108_172, keep=100, pool="avg", keep_last=0, n_test=5), grid={"seed": [0, 1, 2, 3, 4, 5]},
    needs=(ESSAYS,),
    sweep_axes={"lr": loguniform(5e-4, 5e-3), "width": choice(32, 64, 128), "weight_decay": loguniform(1e-4, 1e-1)},
    metric="right/gemfilter", mode="max", minutes=1.5,
    stand_in="a small Llama, trained here to retrieve values by key, in place of LLaMA 3.1 8B and essays",
    small={"lengths": (12, 16), "batch_sizes": (4, 4), "steps": 2, "most_steps": 4, "width": 16, "n_prompt": 40,
        "n_test": 3},
)


@figure.trial
def run(config: ExampleConfig, recorder: Recorder) -> None:
    """`kept/<part>/<way>`: share of a part's tokens; `right/<way>`: share or score of right answers; at step 0."""
    with torch.no_grad():
        (on_essays if config.model else on_needles)(config, recorder)


def ways(config: ExampleConfig) -> dict[str, dict[str, Any]]:
    return {"gemfilter": {}, "printed": {"pool": "avg", "keep_last": 0, "keep_first": 0}}


def on_needles(config: ExampleConfig, recorder: Recorder) -> None:
    with torch.enable_grad():
        model = retrieval.trained(config, recorder).cpu()
    layer = retrieval.best_layer(config, model)
    needles = retrieval.prompts(config, config.n_prompt - retrieval.MARKS, config.n_test, config.depth)
    n, begin = config.n_prompt, int(needles.begins[0, 0])
    values = {"layer/chosen": float(layer), "right/full": share_right(decoding.full(model), needles, needles.prompts)}
    drawn: dict[str, Any] = {}
    for way, changes in ways(config).items():
        chosen = retrieval.selections(config, model, needles.prompts, config.keep, **changes)[layer - 1].cpu()
        by_prompt = [shares(set(row.tolist()), [0], range(int(at), int(at) + data.NEEDLE), range(n - 2, n))
            for row, at in zip(chosen, needles.begins[:, 0], strict=True)]
        values |= {f"kept/{part}/{way}": float(np.mean([each[part] for each in by_prompt])) for part in PARTS}
        short = needles.prompts.gather(1, chosen)
        values[f"right/{way}"] = share_right(decoding.full(model), needles, short)
        answer = decoding.full(model).generate(short[:1], max_new_tokens=data.NEEDLE - 1).tokens[0]
        drawn |= shown(way, chosen[0], [data.NEEDLE_WORDS[i] for i in short[0]], words(answer))
    drawn |= {"wanted": np.array(words(needles.answers[0])), "needle": np.array([begin, begin + data.NEEDLE])}
    finish(config, recorder, values, drawn, [0, 1], [n - 2, n])


def words(ids: Any) -> str:
    return " ".join(data.NEEDLE_WORDS[i] for i in ids)


def share_right(decoder: Any, needles: "data.Needles", ids: Any) -> float:
    return float(retrieval.right(decoder, needles, ids).double().mean())


def on_essays(config: ExampleConfig, recorder: Recorder) -> None:
    assert config.model is not None
    on_gpu = config.device != "cpu" and torch.cuda.is_available()
    model = language.load_model(config.model, weights=config.weights, device="cuda" if on_gpu else "cpu", chat=False)
    essays = [row["text"] for row in data.text_rows(ESSAYS, "train")]
    order = data.stream(config.streams.data, "essays")
    fillers = ["\n\n".join(essays[i] for i in order.permutation(len(essays))) for _ in range(config.n_test)]
    measure(config, recorder, model, fillers)


def measure(config: ExampleConfig, recorder: Recorder, model: Any, fillers: list[str]) -> None:
    """As `on_needles`, for a `language.HubModel` and the texts in which the sentence is hidden."""
    per_prompt: dict[str, list[float]] = {}
    drawn: dict[str, Any] = {}
    spans: list[list[int]] = []
    for number, filler in enumerate(fillers):
        hidden = language.hide_needle(model, filler[: CHARACTERS * config.n_prompt], language.DOLORES_PARK,
            length=config.n_prompt, depth=config.depth, asked=ASKED)
        ids = torch.tensor([hidden.ids], device=model.device)
        first, last = ends_of_text(model, hidden)
        for way, changes in ways(config).items():
            layer = config.filter_layer or model.net.config.num_hidden_layers
            chosen = retrieval.selections(config, model.net, ids, config.keep, **changes)[layer - 1][0].cpu()
            decoder = retrieval.gemfilter(model.net, config.keep, config, filter_layer=layer, **changes)
            said = language.decoded_answer(model, decoder, hidden.text, tokens=SAID)
            by_part = shares(set(chosen.tolist()), range(first), range(*hidden.needle), range(last, len(hidden.ids)))
            for part, share in by_part.items():
                per_prompt.setdefault(f"kept/{part}/{way}", []).append(share)
            per_prompt.setdefault(f"right/{way}", []).append(language.needle_score(said, language.DOLORES_PARK))
            if not number:
                drawn |= shown(way, chosen, [model.said(ids[0, i : i + 1]) for i in chosen.tolist()], said)
                drawn["needle"] = np.array(hidden.needle)
                spans = [[0, first], [last, len(hidden.ids)]]
    drawn["wanted"] = np.array(language.DOLORES_PARK.answer)
    values = {name: float(np.mean(each)) for name, each in per_prompt.items()}
    finish(config, recorder, values | {"layer/chosen": float(layer)}, drawn, *spans)


def ends_of_text(model: Any, hidden: Any) -> tuple[int, int]:
    """How many tokens come before the book, and the first token after it."""
    head, tail = ASKED.replace("{question}", language.DOLORES_PARK.question).split("{text}")
    places = model.encode([hidden.text])[0].places
    begin, end = hidden.text.index(head) + len(head), hidden.text.rindex(tail)
    return sum(stop <= begin for _, stop in places), sum(start < end for start, _ in places)


def shares(chosen: set[int], *parts: Any) -> dict[str, float]:
    return {name: len(chosen & {*part}) / len(part) for name, part in zip(PARTS, parts, strict=True)}


def shown(way: str, chosen: Any, tokens: list[str], said: str) -> dict[str, Any]:
    return {f"chosen/{way}": chosen.numpy(), f"tokens/{way}": np.array(tokens), f"said/{way}": np.array(said)}


def finish(config: ExampleConfig, recorder: Recorder, values: Any, drawn: Any, first: Any, last: Any) -> None:
    recorder.log(values, step=0)
    recorder.array("example", **drawn, instruction=np.array(first), question=np.array(last))


@figure.cost
def cost(config: ExampleConfig):
    if not config.model:
        return retrieval.cost(config)
    parameters = config.size * 1e9
    flops = 2.0 * parameters * config.n_prompt * config.n_test * len(WAYS)
    return Cost(int(parameters), flops, 2.2 * parameters + 2e5 * config.n_prompt, 1, (ESSAYS,), (config.model,))


def parts_kept(runs, way):
    return {part: runs.final(f"kept/{part}/{way}") for part in PARTS}


@figure.claim("e1_the_three_parts_are_kept", paper="the selected tokens retain all three", within=(0, 1),
    says="the selected tokens have the initial instruction, the needle and the question (shares of the tokens of each; "
    "laptop k = 8, max pooling, keep_last 2)", expect={part: at_least(0.9) for part in PARTS})
def three_parts(runs):
    return parts_kept(runs, "gemfilter")


@figure.claim("e1b_needle_beyond_chance", origin="ours",
    says="the selected tokens have more of the needle than as many random tokens would (difference of shares)",
    expect=above(0.5))
def beyond_chance(runs):
    return runs.final("kept/needle/gemfilter") - runs.values("keep")[0] / runs.values("n_prompt")[0]


@figure.claim("e1c_the_three_parts_as_printed", paper="the selected tokens retain all three", within=(0, 1),
    says="with the printed listing, average pooling and no token kept in any case, the selected tokens have the "
    "initial instruction, the needle and the question (shares of the tokens of each)",
    expect={part: at_least(0.9) for part in PARTS})
def three_parts_printed(runs):
    return parts_kept(runs, "printed")


@figure.claim("e2_the_answer_is_right", paper="the correct output", within=(0, 1),
    says="the model answers correctly from the selected tokens alone (share of prompts; published models: score; "
    "laptop k = 8, max pooling, keep_last 2)", expect=at_least(0.9))
def right_answer(runs):
    return runs.final("right/gemfilter")


@figure.draw(rows=2, size=(10, 4.6))
def panels(runs, axes):
    example, n = runs.arrays("example")[0], int(runs.values("n_prompt")[0])
    spans = {part: [int(end) for end in example[part]] for part in PARTS}
    for row, (way, title) in enumerate(WAYS.items()):
        axis = axes[row, 0]
        chosen, tokens = np.asarray(example[f"chosen/{way}"]), [str(word) for word in example[f"tokens/{way}"]]
        axis.vlines(chosen, 0, 1, color="0.35", linewidth=1)
        for (part, (begin, end)), colour in zip(spans.items(), CATEGORIES, strict=False):
            width = max(end - begin, n / 150)  # a needle of few tokens would not be seen
            axis.axvspan(begin, begin + width, ymin=0.0, ymax=1.0, color=colour, alpha=0.35, linewidth=0, label=part)
        axis.set(xlim=(-n / 100, n * 1.01), ylim=(0, 1), yticks=[])
        axis.set_title(f"{title}: {len(chosen)} of {n:,} tokens", loc="right")
        axis.grid(visible=False)
        line, column = 0, 0
        for place, word in zip(chosen, tokens, strict=True):
            inside = [i for i, (begin, end) in enumerate(spans.values()) if begin <= place < end]
            colour = CATEGORIES[inside[0]] if inside else "0.35"
            said = word.replace("\n", "¶").replace("$", r"\$")
            if column + len(said) > 118:
                line, column = line + 1, 0
            axis.text(column / 120, -0.42 - 0.17 * line, said, transform=axis.transAxes, color=colour, fontsize=8,
                family="monospace", fontweight="bold" if inside else "normal", va="center")
            column += len(said) + 1
        answer, wanted = str(example[f"said/{way}"]).strip().split("\n")[0], str(example["wanted"])
        axis.text(0, -0.62 - 0.17 * line, f"answer: {answer}      (right: {wanted})", transform=axis.transAxes,
            fontsize=8, va="center")
        if row:
            axis.set_xlabel("place in the prompt, tokens", labelpad=36 + 10 * line)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    axes[0, 0].figure.legend(handles, labels, loc="outside lower center", ncols=3)
