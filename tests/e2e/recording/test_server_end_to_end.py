"""Results on an MLflow server: written over HTTP, and kept on this machine while the server is away."""

import os
import time

from commandline import CommandLine, ended
from mlflow_server import Server


def test_a_figure_is_reproduced_and_judged_over_http(lab: CommandLine, server: Server) -> None:
    here = lab.elsewhere(lab.home / "http", MLFLOW_TRACKING_URI=server.uri)
    (said,) = here("reproduce", "stranger/curves", "--json").document["experiments"]
    assert [claim["status"] for claim in said["claims"]] == ["holds", "fails"]
    judged = here("judge", said["sweep_run_id"], "--json")
    assert judged.document["experiments"] == [said]
    assert {run.info.status for run in here.runs("stranger/curves")} == {"FINISHED"}
    assert not (here.home / "mlflow.db").exists()


def test_a_run_outlives_its_server_and_sync_sends_the_rest(lab: CommandLine, server: Server) -> None:
    here = lab.elsewhere(lab.home / "away", MLFLOW_TRACKING_URI=server.uri)
    process = here.start("run", "stranger/curves", "level=7", "steps=40", "pause=0.2", "--json")
    running = here.wait_for_point("stranger/curves", "loss/val", runs=7 if here.runs("stranger/curves") else 1)
    run_id = running[-1].info.run_id
    server.stop()
    time.sleep(4)
    left = here.home / ".featurelab" / "outbox"
    assert [path.stem for path in left.glob("*.jsonl")] == [run_id]
    said = ended(process, timeout=240)
    assert (said.code, said.document["run_id"], said.document["status"]) == (1, run_id, "finished")
    assert "Traceback" not in said.err
    assert said.err.endswith("what was recorded is kept until featurelab sync\n")
    assert here("sync", code=1).err.startswith("0 runs sent, 0 still being recorded, 1 left unsent")
    server.start()
    assert here("sync").err.startswith("1 runs sent, 0 still being recorded, 0 left unsent")
    assert os.listdir(left) == []
    run = here.client.get_run(run_id)
    assert (run.info.status, run.data.tags["status"]) == ("FINISHED", "finished")
    assert here.history(run_id, "loss/val") == [(step, 7 + 1 / step) for step in range(1, 41)]
    assert run.data.metrics["best.loss.val"] == 7 + 1 / 40
