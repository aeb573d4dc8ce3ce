"""Results on an MLflow server: written over HTTP, and kept on this machine while the server is away."""

import os

from commandline import CommandLine, ended, sent, until
from mlflow_server import Server


def test_a_figure_is_reproduced_and_judged_over_http(lab: CommandLine, server: Server) -> None:
    here = lab.elsewhere(lab.home / "http", MLFLOW_TRACKING_URI=server.uri)
    (said,) = here("reproduce", "stranger/curves", "--json").document["experiments"]
    assert [claim["status"] for claim in said["claims"]] == ["holds", "fails"]
    judged = here("judge", said["sweep_run_id"], "--json")
    assert judged.document["experiments"] == [said]
    runs = [run for run in here.runs("stranger/curves") if run.data.tags.get("sweep_run_id") == said["sweep_run_id"]]
    assert [run.info.status for run in runs] == ["FINISHED"] * 6
    assert not (here.home / "mlflow.db").exists()


def test_a_run_outlives_its_server_and_sync_sends_the_rest(lab: CommandLine, server: Server) -> None:
    here = lab.elsewhere(lab.home / "away", MLFLOW_TRACKING_URI=server.uri)
    before = len(here.runs("stranger/curves"))
    process = here.start("run", "stranger/curves", "level=7", "steps=40", "pause=0.2", "--json")
    running = here.wait_for_point("stranger/curves", "loss/val", runs=before + 1)
    run_id = running[-1].info.run_id
    server.stop()
    left = here.home / ".featurelab" / "outbox"
    (journal,) = left.glob("*.jsonl")
    assert journal.stem == run_id
    until(lambda: journal.read_bytes().count(b"loss/val") >= 20)  # it goes on without the server
    said = ended(process, timeout=240)
    assert (said.code, said.document["run_id"], said.document["status"]) == (1, run_id, "finished")
    assert "Traceback" not in said.err
    assert said.err.endswith("what was recorded is kept until featurelab sync\n")
    assert sent(here, code=1) == (0, 0, 1)
    server.start()
    assert sent(here) == (1, 0, 0)
    assert os.listdir(left) == []
    run = here.client.get_run(run_id)
    assert (run.info.status, run.data.tags["status"]) == ("FINISHED", "finished")
    assert here.history(run_id, "loss/val") == [(step, 7 + 1 / step) for step in range(1, 41)]
    assert run.data.metrics["best.loss.val"] == 7 + 1 / 40
