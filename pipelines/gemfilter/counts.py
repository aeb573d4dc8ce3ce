"""Theorem 9.3. Operations and numbers held, by count, against the closed forms of the complexity table.

For n tokens of a prompt, k of them kept, t generated and read again, m layers of h query heads and g heads of keys and
values of dimension e, a filter layer r, and w numbers of weights a layer:

    reading      full, SnapKV: m h n^2 e      GemFilter: r h n^2 e
    answering    full: m h (n t + t^2) e      SnapKV: m h (k t + t^2) e      GemFilter: m h (k^2 + t^2) e
    held then    full: m w + 2 m g (n + t) e  SnapKV, GemFilter: m w + 2 m g (k + t) e

An entry counts products of queries and keys; with those of weights and values, and a multiplication and an addition
each, attention has four times as many operations. The table's second reading, k^2, is counted with answering there and
apart here. Of layer r we compute no attention: r - 1 layers attend. The t-th token attends to t tokens that were
generated, so that t^2 is t (t + 1) / 2. The printed memory of reading in full, 2 m h e, lacks the factor n.
"""

from functools import partial

from featurelab.pipelines import (
    CATEGORIES,
    Experiment,
    Recorder,
    at_most,
    bars,
    between,
    choice,
    decoding,
    evaluate,
    learners,
    measures,
)
from featurelab.pipelines.gemfilter.geometry import METHODS, SizeConfig, build, closed_forms, cost, decoders, prompt

FLOPS = 4  # operations of attention for each product that the table counts

figure = Experiment(
    name="gemfilter/counts", trains=False, figures=("Thm. 9.3",),
    title="Operations and numbers held against the closed forms",
    caption="Points: counted. Lines: closed forms as printed. Random weights; k = 32, t = 7, r = 2 of 6 layers, of the "
    "last of which we compute queries and keys alone.",
    laptop=SizeConfig(layers=6, width=32, heads=4, kv_heads=2, hidden=64, vocabulary=64, keep=32, window=8, n_new=8),
    paper=SizeConfig(layers=32, width=256, heads=32, kv_heads=8, hidden=512, filter_layer=13, keep=128, n_new=50),
    grid={"n_prompt": [64, 128, 256, 512], "seed": [0, 1, 2]},
    sweep_axes={"width": choice(32, 64, 128), "keep": choice(16, 32, 64), "filter_layer": choice(1, 2, 4)},
    metric="flops/reading/gemfilter", minutes=0.2, headline=True, small={"n_prompt": [40, 80], "layers": 3, "n_new": 4},
)
figure.cost(cost)


@figure.trial
def run(config: SizeConfig, recorder: Recorder) -> None:
    evaluate(learners.Measurement(build(config), lambda *x: counted(config, *x)), prompt(config), config, recorder)


def counted(config: SizeConfig, net, ids, _):
    """By method: attention's operations, bytes of keys and values kept, the peak of reading; and the closed forms."""
    found: dict[str, float] = {}
    forms, size = closed_forms(config), config.geometry
    for name, decoder in decoders(config, net).items():
        reading = measures.counted_work(partial(decoder.prefill, ids))
        whole = measures.counted_work(partial(decoder.generate, ids, max_new_tokens=config.n_new))
        answered = decoder.generate(ids, max_new_tokens=config.n_new)
        form, bytes_a_number = forms[name], net.dtype.itemsize
        found |= {
            f"flops/reading/{name}": reading.attention_flops,
            f"flops/answering/{name}": whole.attention_flops - reading.attention_flops,
            f"bytes/peak/{name}": reading.peak_bytes,
            f"bytes/after_reading/{name}": decoding.kv_bytes(decoder.prefill(ids)[0]),
            f"bytes/kept/{name}": decoding.kv_bytes(answered.cache),
            f"form/reading/{name}": FLOPS * form.prefill_time,
            f"form/answering/{name}": FLOPS * form.generation_time,
            f"form/kept/{name}": bytes_a_number * (form.generation_memory - size.layers * size.numbers),
            f"form/after_reading/{name}": bytes_a_number * (form.prefill_memory - size.layers * size.numbers),
        }
    first = measures.counted_work(
        lambda: decoding.chosen_tokens(net, ids, filter_layer=size.filter_layer, keep=config.keep)
    )
    found["flops/first_pass/gemfilter"] = first.attention_flops
    return {name: float(value) for name, value in found.items()}


def each_length(runs):
    return [runs.where(n_prompt=n) for n in runs.values("n_prompt")]


def setting(runs, name):
    return runs.values(name)[0]


def relative(runs, counted, expected):
    """The largest |counted / expected - 1| over lengths, for functions of the results of one length."""
    return max(abs(counted(some) / expected(some) - 1) for some in each_length(runs))


def per_product(runs):
    """Four operations of each head and dimension: what every count of attention is a multiple of."""
    return FLOPS * setting(runs, "width")  # h e


@figure.claim("c11_bytes_kept", kind="identity", paper="2 m h (n + t) e and 2 m h (k + t) e",
    says="keys and values that are kept while answering take 2 m g (n + t) e numbers with full attention and 2 m g "
    "(k + t) e with SnapKV and GemFilter, to the byte (largest relative distance)",
    expect=dict.fromkeys(METHODS, at_most(0.0)))
def kept(runs):
    return {
        name: relative(runs, lambda s, n=name: s.final(f"bytes/kept/{n}"), lambda s, n=name: s.final(f"form/kept/{n}"))
        for name in METHODS
    }


@figure.claim("c11e_memory_of_reading_printed", kind="identity", paper="2 m h e",
    says="keys and values after reading with full attention take 2 m g e numbers (largest relative distance)",
    expect=at_most(0.0))
def printed_memory(runs):
    return relative(
        runs, lambda s: s.final("bytes/after_reading/full"),
        lambda s: s.final("form/after_reading/full") / setting(s, "n_prompt"),
    )


@figure.claim("c11f_memory_of_reading", kind="identity", origin="corrected", paper="2 m h e",
    says="and 2 m g n e with the factor n (largest relative distance)", expect=at_most(0.0))
def corrected_memory(runs):
    return relative(
        runs, lambda s: s.final("bytes/after_reading/full"), lambda s: s.final("form/after_reading/full")
    )


@figure.claim("c11g_peaks_of_reading", kind="identity", origin="ours",
    says="while reading no more than one layer's keys and values are held in full: the peak lies below that of full "
    "attention by those of all layers less what is kept, up to those of one layer and one hidden state (distance in "
    "units of these)",
    expect={"snapkv": between(-1, 1), "gemfilter": between(-1, 1)})
def peaks(runs):
    worst = {"snapkv": 0.0, "gemfilter": 0.0}
    for some in each_length(runs):
        one = some.final("bytes/after_reading/full") / setting(some, "layers")
        one *= 1 + setting(some, "heads") / (2 * setting(some, "kv_heads"))
        for name in worst:
            held = some.final("bytes/after_reading/snapkv") if name == "snapkv" else 0.0
            expected = some.final("bytes/after_reading/full") - held
            off = (some.final("bytes/peak/full") - some.final(f"bytes/peak/{name}") - expected) / one
            worst[name] = max(worst[name], off, key=abs)
    return worst


@figure.claim("c10f_operations_of_reading", kind="identity", paper="m h n^2 e",
    says="attention takes 4 m h n^2 e operations to read with full attention and with SnapKV (largest relative "
    "distance)", expect={"full": at_most(0.0), "snapkv": at_most(0.0)})
def reading(runs):
    return {
        n: relative(runs, lambda s, n=n: s.final(f"flops/reading/{n}"), lambda s, n=n: s.final(f"form/reading/{n}"))
        for n in ("full", "snapkv")
    }


@figure.claim("c10g_operations_of_the_filter", kind="identity", paper="r h n^2 e", origin="corrected",
    says="and 4 h ((r - 1) n^2 + m k^2) e with GemFilter, both passes, where layer r computes queries and keys alone "
    "(largest relative distance)", expect=at_most(0.0))
def filtering(runs):
    def expected(some):
        before, k = setting(some, "filter_layer") - 1, min(setting(some, "keep"), setting(some, "n_prompt"))
        return per_product(some) * (before * setting(some, "n_prompt") ** 2 + setting(some, "layers") * k**2)

    return relative(runs, lambda s: s.final("flops/reading/gemfilter"), expected)


@figure.claim("c10h_operations_of_the_filter_printed", paper="r h n^2 e", kind="identity",
    says="which is no more than the printed r h n^2 e with the second pass, m h k^2 e (largest share of it)",
    expect=at_most(1.0))
def printed_filter(runs):
    return max(
        some.final("flops/reading/gemfilter")
        / (
            some.final("form/reading/gemfilter")
            + per_product(some) * setting(some, "layers") * setting(some, "keep") ** 2
        )
        for some in each_length(runs)
    )


@figure.claim("c10i_operations_of_answering", kind="identity", paper="m h (k t + t^2) e", origin="corrected",
    says="answering takes 4 m h (c t + t (t + 1) / 2) e operations, c = n with full attention and k with the others "
    "(largest relative distance)", expect=dict.fromkeys(METHODS, at_most(0.0)))
def answering(runs):
    def expected(some, name):
        t, n = setting(some, "n_new") - 1, setting(some, "n_prompt")
        c = n if name == "full" else min(setting(some, "keep"), n)
        return per_product(some) * setting(some, "layers") * (c * t + t * (t + 1) // 2)

    return {
        n: relative(runs, lambda s, n=n: s.final(f"flops/answering/{n}"), lambda s, n=n: expected(s, n))
        for n in METHODS
    }


@figure.claim("c10j_order_of_answering_printed", kind="identity", paper="m h (n t + t^2) e and m h (k t + t^2) e",
    says="which is the printed order (ratio to four times it, least and greatest over lengths, full and SnapKV)",
    expect={"least": between(0.5, 1), "greatest": between(0.5, 1)})
def printed_order(runs):
    found = [
        some.final(f"flops/answering/{name}") / some.final(f"form/answering/{name}")
        for some in each_length(runs)
        for name in ("full", "snapkv")
    ]
    return {"least": min(found), "greatest": max(found)}


def as_printed(runs, metric, name, n):
    """The counted values as the table splits them: GemFilter's second reading belongs to its answering."""
    own = runs.finals(f"{metric}/{name}", n_prompt=n)
    if name != "gemfilter" or not metric.startswith("flops"):
        return own
    first = runs.finals("flops/first_pass/gemfilter", n_prompt=n)
    second = runs.finals("flops/reading/gemfilter", n_prompt=n) - first
    return first if metric == "flops/reading" else own + second


@figure.draw(cols=3, size=(11, 3.6))
def panels(runs, axes):
    lengths = sorted(runs.values("n_prompt"))
    parts = {"flops/reading": ("first reading", "operations of attention"),
             "flops/answering": ("answering, second reading", "operations of attention"),
             "bytes/kept": ("keys and values kept", "bytes")}
    for axis, (metric, (title, unit)) in zip(axes[0], parts.items(), strict=True):
        form = f"form/{metric.partition('/')[2]}"
        for index, (name, shown) in enumerate(METHODS.items()):
            bars(axis, [as_printed(runs, metric, name, n) for n in lengths], lengths, color=CATEGORIES[index],
                 label=shown, linestyle="none", marker="osD"[index], markersize=7 - 2 * index)
            forms = [runs.final(f"{form}/{name}", n_prompt=n) for n in lengths]
            axis.plot(lengths, forms, color=CATEGORIES[index], linewidth=1)
        axis.set(xlabel="tokens n of the prompt", ylabel=unit, title=title, xscale="log", yscale="log")
        axis.set_xticks(lengths, [str(n) for n in lengths])
        axis.set_xticks([], minor=True)
    axes[0, 0].legend(loc="upper left")
