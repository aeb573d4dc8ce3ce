"""The folder of one series of sweeps: its environment, its commands, and the disk of its outbox."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

TREE = Path(__file__).parents[2]  # the source to run: another tree may be installed
FEATURELAB = Path(sys.executable).with_name("featurelab")
DROPPED = ("MLFLOW_", "RAY_", "FEATURELAB_", "TUNE_", "CHAOS_")  # settings that would point the command elsewhere


def install_lab(site: Path) -> None:
    """Install the experiment under test into a folder, as a package that featurelab finds by its entry point."""
    facts = site / "chaos_lab-1.0.dist-info"
    facts.mkdir(parents=True)
    shutil.copy(Path(__file__).with_name("lab.py"), site / "chaos_lab.py")
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: chaos-lab\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("[featurelab.experiments]\nchaos = chaos_lab\n")


@dataclass(frozen=True)
class Result:
    """The exit status and output of a command that has ended."""

    code: int
    out: str
    err: str
    seconds: float

    @property
    def last_line(self) -> str:
        return next((text for text in reversed(self.err.splitlines()) if text.strip()), "")


def shown(result: Result) -> str:
    return f"{result.code} {result.last_line[:300]}"


@dataclass
class Command:
    """A command that was started."""

    process: "subprocess.Popen[bytes]"
    out: Path
    err: Path
    arguments: tuple[str, ...]
    began: float = field(default_factory=time.monotonic)

    @property
    def runs(self) -> bool:
        return self.process.poll() is None

    def ended(self, patience: float) -> Result:
        """Wait up to `patience` seconds and return the result. A command that has not ended is killed: status -99."""
        try:
            code = self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            code = -99
        out, err = (path.read_text(errors="replace") for path in (self.out, self.err))
        return Result(code, out, err, time.monotonic() - self.began)


class Home:
    """A folder in which commands find the experiment of `lab.py`."""

    def __init__(self, folder: Path, site: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self.truth, self.clock, self.ponder = folder / "truth", folder / "clock", folder / "ponder"
        self.truth.mkdir()
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(DROPPED)}
        self.environment = inherited | {
            "PYTHONPATH": os.pathsep.join([str(TREE), str(site), *filter(None, [os.environ.get("PYTHONPATH")])]),
            "CHAOS_TRUTH": str(self.truth),
            "CHAOS_CLOCK": str(self.clock),
            "CHAOS_PONDER": str(self.ponder),
            "CHAOS_HOME": f"{folder}/",
            "FEATURELAB_CHECKPOINT_SECONDS": "0.5",
            "OMP_NUM_THREADS": "1",
            "RAY_worker_niceness": "0",
            "HF_HUB_OFFLINE": "1",
            "TERM": "dumb",
        }
        self._number = 0
        self.mounted = False

    def start(self, *arguments: str) -> Command:
        self._number += 1
        out, err = (self.folder / f"{name}-{self._number}" for name in ("out", "err"))
        with open(out, "wb") as out_file, open(err, "wb") as err_file:
            process = subprocess.Popen(
                [str(FEATURELAB), *arguments],
                cwd=self.folder,
                env=self.environment,
                stdout=out_file,
                stderr=err_file,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                # under nohup commands would inherit that SIGHUP is ignored
                preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
            )
        return Command(process, out, err, arguments)

    def run(self, *arguments: str, patience: float = 180) -> Result:
        return self.start(*arguments).ended(patience)

    @property
    def outbox(self) -> Path:
        return self.folder / ".featurelab" / "outbox"

    def journals(self) -> list[Path]:
        """Return the journals that are being written or wait to be sent."""
        return sorted(path for path in self.outbox.glob("*.jsonl") if path.suffixes == [".jsonl"])

    def runs_in_outbox(self) -> set[str]:
        """Return the ids of the runs with a journal in the outbox, damaged ones too."""
        return {path.name.partition(".")[0] for path in self.outbox.glob("*.jsonl")}

    def noted(self) -> dict[str, set[int]]:
        """Return, for each trial, the steps whose log() has returned."""
        steps: dict[str, set[int]] = defaultdict(set)
        for path in self.truth.iterdir():
            with suppress(OSError):
                steps[path.name] |= {int(text) for text in path.read_text().split()}
        return steps

    def forget_notes(self) -> None:
        for path in self.truth.iterdir():
            path.unlink()

    def mount_outbox(self, size: str = "6m") -> str:
        """Mount a small disk at `.featurelab`, and return why that is impossible; an empty text if it worked."""
        folder = self.folder / ".featurelab"
        folder.mkdir(exist_ok=True)
        options = f"size={size},mode=0700"
        process = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(folder)], capture_output=True)
        self.mounted = process.returncode == 0
        return "" if self.mounted else "mounting a small disk is not permitted here"

    def remount(self, access: str) -> bool:
        options = f"remount,{access},size=6m"
        place = str(self.folder / ".featurelab")
        return subprocess.run(["mount", "-o", options, place], capture_output=True).returncode == 0

    @staticmethod
    def unmount(place: Path) -> None:
        subprocess.run(["umount", "-l", str(place)], capture_output=True)

    def close(self, *, keep: bool = False) -> None:
        if self.mounted:
            self.unmount(self.folder / ".featurelab")
            self.mounted = False
        if not keep:
            shutil.rmtree(self.folder, ignore_errors=True)
