"""`known.toml`: what was found of each claim."""

import pytest

from featurelab.pipelines.engine.errors import RequestError
from featurelab.pipelines.engine.experiment import known
from featurelab.pipelines.engine.experiment.catalogue import registry
from featurelab.pipelines.engine.experiment.known import Finding, Known
from featurelab.pipelines.engine.verdict import findings

RECORDS = {
    "lines": {
        "rises": Known(
            unspecific="all lines do",
            laptop=Finding(status="fails", reason="too short", measured={"a b": 0.5, "c": 1.0}, ci={"c": [0.1, 2.0]}),
            paper=Finding(status="undecided", reason='a "quoted" \\ reason, with a\nbreak'),
        ),
        "falls": Known(laptop=Finding(status="holds", measured=1e-9, seeds=6, controls={"untrained": "fails"})),
    }
}


def test_what_is_written_is_read_back(tmp_path):
    known.write(tmp_path, RECORDS)
    for claim, record in RECORDS["lines"].items():
        assert known.known(tmp_path, "system/lines", claim) == record


def test_a_claim_without_an_entry_is_expected_to_hold(tmp_path):
    assert known.known(tmp_path, "system/lines", "rises") == Known()
    known.write(tmp_path, RECORDS)
    assert known.known(tmp_path, "system/lines", "bends") == known.known(tmp_path, "system/dots", "rises") == Known()


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[lines.rises.laptop]\nstatus = 'perhaps'", "lines.rises.laptop.status"),
        ("[lines.rises.desk]\nstatus = 'holds'", "lines.rises.desk"),
        ("[lines]\nrises = 3", "lines.rises"),
        ("lines = 3", "lines.rises"),
        ("[lines", "not TOML"),
    ],
)
def test_a_bad_entry_is_named(tmp_path, text, named):
    (tmp_path / known.FILE).write_text(text)
    with pytest.raises(RequestError, match=named):
        known.known(tmp_path, "system/lines", "rises")


def test_no_entry_is_without_its_claim_and_every_claim_that_does_not_hold_says_why():
    experiments = registry.experiments()
    assert findings.entries_without_claim(experiments) == []
    silent = [
        f"{experiment.name}: {claim.id} at {scale}"
        for experiment in experiments
        for claim in experiment.claims
        for scale in ("laptop", "paper")
        if (claim.documented(scale) == "holds") == bool(claim.because(scale))
    ]
    assert silent == []
