"""Counted operations and bytes against what simple code must take."""

import pytest
import torch

from featurelab.modules.measures import counted_work, measured_cost

MB = torch.ones(250_000)  # a million bytes


def test_bytes_are_those_of_new_tensors_as_long_as_they_live():
    def chain():
        x = MB + 1
        for _ in range(5):
            x = x + 1  # two at once
        return x

    assert counted_work(chain).peak_bytes == 2e6

    def held():
        kept = [MB * k for k in range(5)]
        del kept[:4]
        return kept[0] + kept[0]

    assert counted_work(held).peak_bytes == 5e6
    assert counted_work(lambda: MB.view(500, 500).t()[1:]).peak_bytes == 0, "views are not new"
    assert counted_work(lambda: (MB + 1).view(500, 500).t()).peak_bytes == 1e6
    assert counted_work(lambda: MB.add_(0)).peak_bytes == 0
    assert counted_work(lambda: None) == (0, 0, 0)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_operations_are_those_of_products_and_of_attention(causal, kv_heads):
    q, k = torch.randn(2, 4, 7, 8), torch.randn(2, kv_heads, 9, 8)
    weight = torch.randn(8, 5)

    def run():
        options = {"is_causal": causal, "enable_gqa": kv_heads < 4}
        return torch.nn.functional.scaled_dot_product_attention(q, k, k, **options) @ weight

    with torch.no_grad():
        work = counted_work(run)
    assert work.attention_flops == 2 * (2 * 4 * 7 * 9 * 8) * 2  # two products for each pair of a query and a key
    assert work.flops - work.attention_flops == 2 * (2 * 4 * 7) * 8 * 5
    assert work.flops == counted_work(run).flops


def test_twice_the_work_takes_more_time():
    a = torch.randn(200, 200)

    def work(times):
        for _ in range(times):
            a @ a

    work(10)
    few, many = (min(measured_cost(lambda t=times: work(t)).seconds for _ in range(3)) for times in (20, 200))
    assert many > 3 * few > 0
    assert measured_cost(lambda: None).peak_bytes is None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_memory_is_the_allocator_s():
    found = measured_cost(lambda: torch.ones(2**20, device="cuda") + 1, "cuda")
    assert found.seconds > 0
    assert found.peak_bytes >= 2 * 2**22
