"""After any command `mlflow.db` alone is the whole store, so that a copy, a mail or a backup of it loses nothing."""

import shlex
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from commandline import CommandLine, ended, until

README = Path(__file__).parents[3] / "docs" / "reliability.md"
TABLES = ("experiments", "runs", "metrics", "latest_metrics", "params", "tags")


def counted(path: Path) -> dict[str, int]:
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return {table: database.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in TABLES}


def check_copy(here: CommandLine, runs: int) -> None:
    """A copy of the one file has all that the store has, and as many runs."""
    copy = here.home / "copy.db"
    # in a process of its own: closing the file in this one would drop the locks of its client
    subprocess.run(["cp", here.home / "mlflow.db", copy], check=True)
    assert counted(copy) == counted(here.home / "mlflow.db")
    assert counted(copy)["runs"] == runs
    copy.unlink()


@contextmanager
def a_reader(path: Path) -> Iterator[None]:
    """Another process that reads the store as it was, and does not stop."""
    script = "import sqlite3, sys\nd = sqlite3.connect(sys.argv[1], isolation_level=None)\nd.execute('BEGIN')\n"
    script += "print(d.execute('SELECT count(*) FROM runs').fetchone(), flush=True)\nsys.stdin.read()"
    command = [sys.executable, "-c", script, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdout
        assert reader.stdout.readline()
        yield
        reader.communicate()


def test_a_copy_of_the_file_is_the_whole_store_after_each_command(lab: CommandLine) -> None:
    here = lab.desk("copied")
    here("run", "stranger/curves")
    check_copy(here, 1)
    swept = here("sweep", "stranger/curves", "--over", "level=1,2", "--json").document
    check_copy(here, 4)
    here("run", "stranger/troubles", "ending=tell", code=1)
    check_copy(here, 5)
    here("rerun", here.runs("stranger/curves")[0].info.run_id)
    check_copy(here, 6)
    here("judge", swept["sweep_run_id"])
    check_copy(here, 6)
    process = here.start("run", "stranger/curves", "steps=4000", "pause=0.02", "seed=7")
    until(lambda: [run for run in here.runs("stranger/curves") if run.data.metrics and run.info.status == "RUNNING"])
    process.send_signal(signal.SIGINT)
    assert ended(process).code == 130
    check_copy(here, 7)


def test_a_reader_that_does_not_stop_does_not_keep_a_command_from_ending(featurelab: CommandLine) -> None:
    here = featurelab.desk("read")
    here("run", "stranger/curves")
    with a_reader(here.home / "mlflow.db"):
        said = here("run", "stranger/curves", "seed=1", timeout=60)
        assert "Traceback" not in said.err
    assert counted(here.home / "mlflow.db")["runs"] == 2
    here("run", "stranger/curves", "seed=2")
    check_copy(here, 3)


def test_the_documented_command_copies_a_store_that_is_written(featurelab: CommandLine) -> None:
    (line,) = [line for line in README.read_text().splitlines() if line.startswith("python -c ") and ".backup(" in line]
    here = featurelab.desk("written")
    process = here.start("run", "stranger/curves", "steps=4000", "pause=0.02")
    here.wait_for_point("stranger/curves", "loss/val")
    _, *arguments = shlex.split(line)
    before = counted(here.home / "mlflow.db")
    subprocess.run([sys.executable, *arguments], cwd=here.home, check=True, timeout=60)
    assert process.poll() is None, "it still writes"
    copy = counted(here.home / "copy.db")
    process.send_signal(signal.SIGINT)
    assert ended(process).code == 130
    after = counted(here.home / "mlflow.db")
    assert before["metrics"] > 0
    assert all(before[table] <= copy[table] <= after[table] for table in TABLES)
