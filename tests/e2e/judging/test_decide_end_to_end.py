"""Seeds that are added until claims are decided, and trials under controls, in the sweep of the figure itself."""

import json
from collections import Counter

from commandline import CommandLine

NAME = "stranger/unsure"
READER = "stranger/half"  # has no trials of its own


def test_seeds_are_added_to_what_undecided_claims_look_at_until_they_are_decided(lab: CommandLine) -> None:
    here = lab.desk("deciding")
    said = here("reproduce", NAME, READER, "--decide", "--controls", "--json")
    figure, reader = said.document["experiments"]
    unclear, clear = figure["claims"]
    runs = here.runs(NAME)
    assert {run.data.tags["sweep_run_id"] for run in runs} == {figure["sweep_run_id"]}
    trials = [json.loads(run.data.tags["config"]) for run in runs]
    assert figure["trials"] == len(trials)

    assert (clear["status"], clear["seeds"]) == ("holds", 6)
    assert unclear["status"] == "holds"
    assert unclear["seeds"] > 6
    assert unclear["decided"]["seeds"] == unclear["seeds"]
    assert unclear["decided"]["ci"][0] >= 0.3
    assert unclear["decided"]["level"] > 0.95, "each look gets a part of the allowed error"
    seeds = Counter(config["arm"] for config in trials if config["control"] == "none")
    (closer,) = reader["claims"]
    assert (closer["status"], closer["specific"]) == ("holds", True)
    assert unclear["seeds"] < closer["seeds"]
    assert seeds == {"clear": 6, "with": closer["seeds"], "without": closer["seeds"]}
    assert here.runs(READER) == []
    assert reader["trials"] == 4 * closer["seeds"]

    controls = [config for config in trials if config["control"] != "none"]
    assert Counter(config["arm"] for config in controls) == seeds, "controls run on each seed that decided a claim"
    assert {config["control"] for config in controls} == {"permuted_labels"}
    assert {claim["specific"] for claim in figure["claims"]} == {True}
    assert set(unclear["controls"]) == {"permuted_labels"}
    assert unclear["controls"]["permuted_labels"]["state"] == "broken"
    assert unclear["controls"]["permuted_labels"]["measured"] < 0.3

    again = here("judge", figure["sweep_run_id"], "--json").document["experiments"][0]
    assert again["claims"] == figure["claims"]
    repeated = here("rerun", next(run.info.run_id for run in runs if "permuted" in run.data.tags["config"]), "--json")
    assert repeated.document["identical"]


def test_without_being_asked_no_seed_is_added_and_what_is_undecided_contradicts_nothing(lab: CommandLine) -> None:
    here = lab.desk("undecided")
    (figure,) = here("reproduce", NAME, "--json").document["experiments"]
    assert figure["trials"] == 9
    assert [claim["status"] for claim in figure["claims"]] == ["undecided", "holds"]
    assert [claim["specific"] for claim in figure["claims"]] == [None, None]


def test_controls_alone_run_the_whole_grid_under_each_of_them(lab: CommandLine) -> None:
    here = lab.desk("controlled")
    (figure,) = here("reproduce", NAME, "--controls", "--json").document["experiments"]
    trials = [json.loads(run.data.tags["config"]) for run in here.runs(NAME)]
    assert Counter(config["control"] for config in trials) == {"none": 9, "permuted_labels": 9}
    assert [set(claim["controls"]) for claim in figure["claims"]] == [{"permuted_labels"}] * 2


def test_a_number_of_seeds_that_cannot_be_is_refused(lab: CommandLine) -> None:
    here = lab.elsewhere(lab.home / "refused")
    for arguments, named in (
        (["--most-seeds", "8"], ["--most-seeds", "--decide"]),
        (["--decide", "--most-seeds", "5"], ["--most-seeds 5", "6", "256"]),
    ):
        said = here("reproduce", NAME, *arguments, code=2).err
        assert all(word in said for word in named), said
    assert list(here.home.iterdir()) == []
