"""A figure at other settings, and a map of them: resumed after a kill, apart from the figure's own verdicts."""

import os
from pathlib import Path

from commandline import CommandLine

NAME = "patient/curves"
OVER = ["--over", "pause=0.01,0.02", "--over", "points=20"]


def test_a_killed_map_resumes_and_equals_an_undisturbed_one_and_each_cell_a_figure_at_its_settings(
    lab: CommandLine, tmp_path: Path
) -> None:
    here = lab.desk("mapped")
    process = here.start("map", NAME, *OVER, "--name", "cut", "--json")
    here.wait_for_point(NAME, "best.loss.val", runs=3, process=process)
    process.kill()
    process.wait()
    begun = {run.info.run_id for run in here.runs(NAME)}
    assert 3 <= len(begun) < 12

    resumed = here("map", NAME, "--resume", "cut", "--json").document
    assert {cell["config"]["pause"] for cell in resumed["cells"]} == {0.01, 0.02}
    runs = here.runs(NAME)
    assert len(runs) == 12
    assert begun <= {run.info.run_id for run in runs}
    assert {run.data.tags["map"] for run in runs} == {"pause,points"}
    (sweep,) = here.runs("verdicts")
    stored = {entry.path for entry in here.client.list_artifacts(sweep.info.run_id)}
    assert {*resumed["figures"], "cells.csv", "cells.json"} <= stored
    assert sweep.data.tags["verdict"] == "2 holds"

    whole = here("map", NAME, *OVER, "--json")
    assert "2 cells with 6 trials each" in whole.err.splitlines()[0]
    assert whole.document["cells"] == resumed["cells"]
    assert whole.document["sweep_run_id"] != resumed["sweep_run_id"]
    assert here("judge", resumed["sweep_run_id"], "--json").document == resumed

    (figure,) = here("reproduce", NAME, "pause=0.01", "points=20", "--json").document["experiments"]
    (claim,) = figure["claims"]
    (cell,) = [cell for cell in resumed["cells"] if cell["config"] == {"pause": 0.01, "points": 20}]
    assert cell["claims"] == [{key: claim[key] for key in ("id", "status", "measured", "ci")}]
    assert claim["documented"] is None
    tagged = [run for run in here.runs(NAME) if run.data.tags.get("settings")]
    assert {run.data.tags["settings"] for run in tagged} == {"pause=0.01 points=20"}
    here("report", "--out", str(tmp_path / "report"))
    page = (tmp_path / "report" / "index.html").read_text()
    assert page.count("data:image/png;base64") == 1, "the newest map is shown, and no figure: none is reproduced"
    refused = here("sweep", NAME, "--resume", "cut", code=2)
    assert "featurelab map" in refused.err


def test_a_setting_of_the_grid_is_refused_and_nothing_written(lab: CommandLine) -> None:
    here = lab.elsewhere(lab.home / "refused")
    for arguments, named in (
        (["map", NAME, "--over", "level=1,2"], "level is set by the grid of patient/curves"),
        (["map", NAME, "--over", "pointz=1,2"], "did you mean points?"),
        (["map", NAME], "--over"),
        (["reproduce", NAME, "level=3"], "level is set by the grid of patient/curves"),
        (["reproduce", NAME, "pointz=3"], "did you mean points?"),
        (["reproduce", "patient", "points=3"], "points=3"),
        (["reproduce", "patient", "seed=x"], "seed = 'x'"),
    ):
        said = here(*arguments, code=2)
        assert named in said.err
        assert said.err.count("\n") == 1, said.err
    assert os.listdir(here.home) == []
