"""Time, memory and counts: geometries of published models, what is compared, and that wrong counts would be seen."""

import numpy as np
import pytest
from smallsizes import on_three_seeds

from featurelab.pipelines.engine.errors import RequestError
from featurelab.pipelines.engine.experiment.catalogue import registry
from featurelab.pipelines.engine.verdict.check import performed, recorded
from featurelab.pipelines.gemfilter import geometry, time_and_memory

pytest.importorskip("transformers")

COUNTS, TIME = registry.find("gemfilter/counts"), registry.find("gemfilter/time_and_memory")


@pytest.fixture(scope="module")
def counted():
    return performed(COUNTS, on_three_seeds(COUNTS))


def test_the_sizes_are_those_of_the_published_models():
    """Parameters of each, as its model card gives them, in billions."""
    for name, billions in (("llama_3_1_8b", 8.03), ("mistral_nemo_12b", 12.2), ("phi_3_5_mini", 3.82)):
        size = geometry.PUBLISHED[name]
        total = size.layers * size.numbers + 2 * size.vocabulary * size.width
        assert total / 1e9 == pytest.approx(billions, rel=0.01)
    config = TIME.paper
    assert config.geometry.filter_layer == 13 + 1, "13 counts from zero"
    assert geometry.PUBLISHED["llama_3_1_8b"].layers / 13 == pytest.approx(2.46, abs=0.005)


def test_identities_hold_at_every_length_and_a_wrong_count_is_seen(counted):
    for claim in COUNTS.claims:
        verdict = claim.judge(counted)
        assert verdict.status == claim.documented(), claim.id
    points = recorded(counted).copy()
    kept = points.metric == "bytes/kept/gemfilter"
    points.loc[kept, "value"] *= 33 / 32  # one token too many
    wrong = type(counted)(counted.trials, lambda name: points[points.metric == name], counted.load)
    (claim,) = [claim for claim in COUNTS.claims if claim.id == "c11_bytes_kept"]
    assert claim.judge(wrong).status == "fails"


def test_closed_forms_are_those_of_hand_counting(counted):
    """n = 80, m = 3, h = 4, g = 2, e = 8, k = 32, t = 3, r = 2, four bytes a number."""
    some = counted.where(n_prompt=80)
    assert some.final("bytes/kept/full") == 4 * 2 * 3 * 2 * (80 + 3) * 8
    assert some.final("bytes/kept/gemfilter") == some.final("bytes/kept/snapkv") == 4 * 2 * 3 * 2 * (32 + 3) * 8
    assert some.final("flops/reading/full") == 4 * 3 * 4 * 80**2 * 8
    assert some.final("flops/first_pass/gemfilter") == 4 * 1 * 4 * 80**2 * 8
    assert some.final("flops/answering/gemfilter") == 4 * 3 * 4 * 8 * sum(32 + i for i in (1, 2, 3))


def test_work_falls_with_the_filter_layer_and_time_is_taken():
    config = TIME.small_configs()[-1]
    found = performed(TIME, [config.but(filter_layer=layer) for layer in (1, 2, 3)])
    flops = [found.final("flops/reading/gemfilter", filter_layer=layer) for layer in (1, 2, 3)]
    assert np.all(np.diff(flops) > 0)
    assert flops[-1] < found.final("flops/reading/full") + flops[0], "no more than everything and a second reading"
    for name in geometry.METHODS:
        assert found.final(f"seconds/reading/{name}") > 0
        assert found.final(f"bytes/whole/{name}") >= found.final(f"bytes/reading/{name}") > 0
    assert found.final("bytes/reading/full") > found.final("bytes/reading/snapkv")
    assert time_and_memory.ratio(found.where(filter_layer=2)) == 1.5


def test_prompts_shorter_than_32_times_what_is_kept_leave_the_speed_untested():
    config = TIME.small_configs()[0]
    found = performed(TIME, [config.but(seed=seed) for seed in range(3)])
    (claim,) = [claim for claim in TIME.claims if claim.id == "c10_speed_up_printed"]
    verdict = claim.judge(found)
    assert verdict.status == "untested"
    assert "no prompt has 32 times as many tokens" in verdict.reason


@pytest.mark.parametrize("wrong", [{"filter_layer": 7}, {"heads": 5}, {"kv_heads": 3}])
def test_sizes_that_cannot_be_are_refused(wrong):
    with pytest.raises(RequestError, match="must"):
        COUNTS.laptop.but(**wrong)
