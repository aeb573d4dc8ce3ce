"""What one measurement of every layer's neural feature ansatz costs on a causal language model.

A Llama of two layers of width 32 with 100 words, on 300 sequences of 12 tokens: each has 1,200 outputs.

    exact         measures.tangent_covariance, which starts from the rows of a factor of the last layer's Gram matrix
                  and runs prefixes; checked against the loop
    sampled       random signs over all outputs, with the standard error of K that is recorded with it
    output loop   one autograd.grad for each output over all sequences, with its J^T J at once
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from benchmarks._rows import OURS, Row, Size, alternate, available, compare
from benchmarks.mathematics._layers import forward
from featurelab.modules import measures

SIZES: dict[Size, tuple[int, int, int, int]] = {"full": (300, 12, 100, 5), "tiny": (3, 3, 40, 1)}
DRAWS, THREADS = 12, 2
Scores = dict[str, float]


def model(words: int) -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(vocab_size=words, use_cache=False, **sizes)).eval()


def scored(covariances: dict[str, measures.TangentCovariance]) -> Scores:
    return {name: measures.nfa(layer.W, layer.K).item() for name, layer in covariances.items()}


def exact(net: nn.Module, ids: Tensor) -> Scores:
    return scored(measures.tangent_covariance(net, ids))


def sampled(net: nn.Module, ids: Tensor) -> Scores:
    covariances = measures.tangent_covariance(net, ids, draws=DRAWS)
    for layer in covariances.values():
        measures.sampling_error(layer)
        measures.standard_errors(layer, lambda each: {"nfa": measures.nfa(each.W, each.K).item()})
    return scored(covariances)


def output_loop(net: nn.Module, ids: Tensor) -> Scores:
    logits, calls = forward(net, lambda: net(ids).logits)
    outputs, layers = logits.flatten(1), measures.layer_names(net)
    K = {name: torch.zeros(2 * [h.shape[-1]]) for name, h in calls.items()}
    for c in range(outputs.shape[1]):
        gradients = torch.autograd.grad(outputs[:, c].sum(), [*calls.values()], retain_graph=True)
        for total, J in zip(K.values(), gradients, strict=True):
            J = J.flatten(0, -2)
            total.addmm_(J.T, J)
    weights = {name: layers[name].weight.detach() for name in K}
    return {name: measures.nfa(weights[name], K[name] / len(ids)).item() for name in K}


def rows(size: Size) -> list[Row]:
    if not available("transformers"):
        note = "skipped: pip install transformers"
        return [Row("exact", "NFA of every layer of a causal language model", None, note=note)]
    torch.set_num_threads(THREADS)
    samples, length, words, repeats = SIZES[size]
    net = model(words)
    ids = torch.randint(3, words, (samples, length), generator=torch.Generator().manual_seed(0))
    what = f"NFA of every layer, Llama 2 x 32, {words} words, {length} tokens, n = {samples}, {THREADS} threads"
    few, K = ids[: max(2, samples // 30)], measures.tangent_covariance(net, ids)
    for name, score in output_loop(net, few).items():
        if abs(score - exact(net, few)[name]) > 1e-4:
            raise SystemExit(f"the output loop disagrees with featurelab on {name}")
    calls: dict[str, Callable[[], object]] = {
        OURS: partial(exact, net, ids),
        "output loop": partial(output_loop, net, ids),
    }
    exactly = compare("exact", f"{what}, exact", alternate(calls, 1, warm=False))
    drawn = measures.tangent_covariance(net, ids, draws=DRAWS)
    told = [measures.sampling_error(layer) for layer in drawn.values()]
    away = [float((layer.K - K[name].K).norm() / K[name].K.norm()) for name, layer in drawn.items()]
    numbers = {
        "draws": float(DRAWS),
        "mean_standard_error_percent": 100 * sum(told) / len(told),
        "worst_standard_error_percent": 100 * max(told),
        "worst_error_percent": 100 * max(away),
        "worst_error_of_nfa": max(abs(a - b) for a, b in zip(scored(drawn).values(), scored(K).values(), strict=True)),
    }
    taken = alternate({OURS: partial(sampled, net, ids)}, repeats)
    return exactly + compare("sampled", f"{what}, {DRAWS} draws", taken, numbers=numbers)
