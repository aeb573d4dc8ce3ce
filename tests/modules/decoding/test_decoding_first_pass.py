"""What the first pass runs and holds, that nothing of it stays, and which models have no such pass."""

import subprocess
import sys
import threading
import weakref

import pytest
import torch
from tiny_families import MIXED, PLAIN, prompts, tiny, transformers

from featurelab.modules import decoding
from featurelab.modules.decoding import attention as interface

LAYERS, FILTER = 5, 3


class Ran:
    """Names of modules whose forward began, while in use."""

    def __init__(self, model):
        self.names = []
        self.handles = [
            module.register_forward_pre_hook(lambda *_, name=name: self.names.append(name))
            for name, module in model.named_modules()
        ]

    def __enter__(self):
        return self.names

    def __exit__(self, *_):
        for handle in self.handles:
            handle.remove()


@pytest.mark.parametrize("family", PLAIN)
def test_only_the_layers_before_run_and_of_the_filter_layer_only_queries_and_keys(family):
    model = tiny(family, num_hidden_layers=LAYERS, layer_types=(MIXED * 2)[:LAYERS] if family == "gemma3" else None)
    with Ran(model) as names:
        decoding.chosen_tokens(model, prompts(), filter_layer=FILTER, keep=4)
    layers = sorted({name.split(".")[2] for name in names if name.startswith("model.layers.")})
    assert layers == ["0", "1", "2"]
    for part in ("self_attn.o_proj", "mlp"):
        assert [name for name in names if name.endswith(part)] == [f"model.layers.{i}.{part}" for i in (0, 1)]
    assert "lm_head" not in names
    assert "model.norm" not in names


def test_of_all_layers_scored_the_last_is_the_last_that_runs():
    model = tiny(num_hidden_layers=LAYERS)
    with Ran(model) as names:
        decoding.layer_scores(model, prompts(), [2, 4, 1])
    assert sum(name.endswith("self_attn") for name in names) == 4
    assert sum(name.endswith("mlp") for name in names) == 3


def test_a_pass_keeps_no_layer_before_and_a_cut_cache_one_whole_layer_at_most(monkeypatch):
    """Queries, keys and values that live when a layer's attention begins, of earlier layers; not what was cut out."""
    model, alive, counts = tiny(num_hidden_layers=LAYERS), [], []
    kind = interface.Call

    def watched(*given, **options):
        call = kind(*given, **options)
        counts.append(sum(tensor() is not None for tensor in alive))
        alive.extend(map(weakref.ref, (call.query, call.key, call.value)))
        return call

    monkeypatch.setattr(interface, "Call", watched)
    ids = prompts(2, 30)
    decoding.chosen_tokens(model, ids, filter_layer=FILTER, keep=4)
    assert counts == [0] * FILTER
    for decoder in (decoding.snapkv(model, 6, window=2), decoding.h2o(model, 6, window=2)):
        alive.clear(), counts.clear()
        decoder.prefill(ids)
        assert counts == [0] * LAYERS
    alive.clear(), counts.clear()
    decoding.gemfilter(model, FILTER, 4, runs=1).prefill(ids)
    assert counts == [0, 2, 4, 0, 0]  # keys and values of the layers that wait for the choice
    alive.clear(), counts.clear()
    decoding.full(model).prefill(ids)
    assert counts == [0, 2, 4, 6, 8]


class OutOfMemory(RuntimeError):
    pass


def fail(*_):
    raise OutOfMemory("made up")


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_the_models_setting_comes_back_also_after_a_failure(attention):
    model, ids = tiny(attention=attention), prompts()
    expected = model(ids).logits
    handle = model.model.layers[1].mlp.register_forward_hook(fail)
    for call in (
        lambda: decoding.chosen_tokens(model, ids, filter_layer=3, keep=4),
        lambda: decoding.snapkv(model, 4, window=2).generate(ids),
        lambda: decoding.gemfilter(model, 3, 4, runs=1).generate(ids),
    ):
        with pytest.raises(OutOfMemory):
            call()
        assert model.config._attn_implementation == attention
    handle.remove()
    assert not interface._users
    assert torch.equal(model(ids).logits, expected)
    decoding.chosen_tokens(model, ids, filter_layer=2, keep=4)
    assert model.config._attn_implementation == attention


def test_a_choice_that_asks_for_a_choice():
    model, ids = tiny(), prompts()
    decoder = decoding.given_tokens(
        model, lambda row: decoding.chosen_tokens(model, row[None], filter_layer=2, keep=5)[0]
    )
    found = decoder.generate(ids, max_new_tokens=4).tokens
    assert torch.equal(found, decoding.gemfilter(model, 2, 5).generate(ids, max_new_tokens=4).tokens)
    assert model.config._attn_implementation == "sdpa"


def test_another_model_of_the_same_configuration_is_not_listened_to():
    """Nor are passes of one model that begin within a pass of another."""
    model, ids = tiny(), prompts()
    other = type(model)(model.config).double().eval()
    assert other.config is model.config
    with torch.no_grad():
        plain = other(ids).logits
    expected = decoding.snapkv(other, 6, window=2).prefill(ids)[1]
    seen = []

    def within(*_):
        assert other.config._attn_implementation != "sdpa"
        seen.append(torch.equal(other(ids).logits, plain))
        seen.append(torch.equal(decoding.snapkv(other, 6, window=2).prefill(ids)[1], expected))

    alone = decoding.chosen_tokens(model, ids, filter_layer=3, keep=5)
    model.model.layers[1].mlp.register_forward_hook(within)
    together = decoding.chosen_tokens(model, ids, filter_layer=3, keep=5)
    assert all(map(torch.equal, together, alone))
    assert seen == [True, True]
    assert model.config._attn_implementation == "sdpa"


def test_threads_do_not_hear_one_another():
    model, ids = tiny(), prompts(1, 30)
    decoders = [decoding.gemfilter(model, 2, 8), decoding.snapkv(model, 8, window=3), decoding.full(model)]
    expected = [decoder.generate(ids, max_new_tokens=6).tokens for decoder in decoders]
    plain, wrong = model.generate(ids, max_new_tokens=6, do_sample=False, eos_token_id=None), []

    def work(index):
        for _ in range(4):
            if index == 3:
                same = torch.equal(model.generate(ids, max_new_tokens=6, do_sample=False, eos_token_id=None), plain)
            else:
                same = torch.equal(decoders[index].generate(ids, max_new_tokens=6).tokens, expected[index])
            if not same:
                wrong.append(index)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert model.config._attn_implementation == "sdpa"
    assert not interface._users


def small(kind, **sizes):
    name = {"T5": "T5ForConditionalGeneration", "Bert": "BertLMHeadModel"}.get(kind, f"{kind}ForCausalLM")
    config = getattr(transformers, f"{kind}Config")
    common = {"vocab_size": 31, "hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2}
    return getattr(transformers, name)(config(**(common | sizes)))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (lambda: small("T5", d_model=16, d_ff=16, num_layers=2, num_heads=2, d_kv=8), "encoder or cross-attention"),
        (lambda: small("Mamba", state_size=4), "state-space layers"),
        (lambda: small("Bloom", n_layer=2, n_head=2), "attention interface"),
        (
            lambda: tiny("qwen3", layer_types=["full_attention", "chunked_attention", "full_attention"]),
            "chunked_attention",
        ),
        (lambda: small("Jamba", num_experts=2, mamba_d_state=4, intermediate_size=16), "state-space layers"),
        (lambda: torch.nn.Linear(2, 2), "Linear is not a causal language model"),
    ],
)
def test_models_without_such_layers_are_refused(model, message):
    with pytest.raises(ValueError, match=message):
        decoding.full(model())


def test_a_model_whose_tokens_see_later_ones_is_refused():
    model = small("Bert", intermediate_size=16)
    with pytest.raises(ValueError, match="not causal"):
        decoding.full(model).generate(prompts() % 31)
    assert model.config._attn_implementation == "sdpa"


def test_the_package_can_be_imported_without_transformers():
    lines = [
        "import sys, importlib.util as util",
        "known = util.find_spec",
        "util.find_spec = lambda name, *rest: None if name.startswith('transformers') else known(name, *rest)",
        "sys.modules['transformers'] = None",
        "from featurelab.modules import decoding",
        "print(decoding.choose_tokens.__name__)",
        "try: decoding.full(None)",
        "except Exception as error: print(type(error).__name__, error)",
    ]
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True)
    assert done.stdout.splitlines()[0] == "choose_tokens", done.stderr
    assert done.stdout.splitlines()[1].startswith("ModelMissing published models need the extra `lm`: run `pip install")
