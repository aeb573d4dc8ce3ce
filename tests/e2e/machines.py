"""Ray clusters: one machine for many tests, or several, each with its address and where permitted its own disk."""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from commandline import warm
from mlflow_server import free_port
from warm import Forked

RAY = Path(sys.executable).parent / "ray"


def own_mounts() -> bool:
    """Whether a process may have mounts of its own here; many containers do not permit it."""
    command = ["unshare", "--mount", "--map-root-user", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return shutil.which("unshare") is not None and subprocess.run(command, capture_output=True).returncode == 0


@contextmanager
def one_machine(environment: dict[str, str], cpus: int, gpus: int) -> Iterator[str]:
    """The address of a cluster of one machine that has, as Ray is told, so many CPUs and GPUs."""
    address = f"127.0.0.1:{free_port()}"
    folder = tempfile.mkdtemp(prefix="ray", dir="/tmp")  # its sockets need a short path
    command = ["start", "--head", "--block", f"--num-cpus={cpus}", f"--num-gpus={gpus}", "--include-dashboard=false"]
    command += ["--include-log-monitor=false", "--no-monitor"]  # they take a tenth of the time of the tests
    command += [f"--temp-dir={folder}", "--node-ip-address=127.0.0.1", f"--port={address.rpartition(':')[2]}"]
    head = warm().start(command, Path(folder), environment, script=Path(__file__).with_name("warm_workers.py"))
    for _ in range(600):
        try:
            socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), timeout=1).close()
            break
        except OSError:
            assert head.poll() is None, head.communicate()
            time.sleep(0.1)
    yield address
    end(head)
    shutil.rmtree(folder, ignore_errors=True)


@dataclass
class Machines:
    """A head without CPUs, and machines of one CPU each, at 127.0.0.2 and on.

    Where permitted, the folder `disk` is another one on each of them, and is lost with the machine.
    """

    environment: dict[str, str]
    disk: Path
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="ray", dir="/tmp")))  # sockets: short
    port: int = field(default_factory=free_port)
    workers: "list[subprocess.Popen[bytes]]" = field(default_factory=list)
    made: int = 1

    def __post_init__(self) -> None:
        # `ray start` would protect the cluster with a token that it keeps in the user's home
        self.token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        self.apart = own_mounts()
        self.disk.mkdir(parents=True, exist_ok=True)
        self.log = (self.folder / "ray.log").open("ab")
        head = ["--head", "--num-cpus=0", "--include-dashboard=false", f"--temp-dir={self.folder}"]
        head += ["--include-log-monitor=false", "--no-monitor"]
        head += ["--node-ip-address=127.0.0.1", f"--port={self.port}"]
        # a machine whose processes are gone is missed after seconds, one that is only busy is not
        noticing = {"RAY_health_check_period_ms": "500", "RAY_health_check_failure_threshold": "4"}
        self.head = self._start([RAY, "start", *head, "--block"], noticing)
        self._wait_for(1)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def add(self, count: int = 1, **changes: str) -> None:
        """Start machines, and wait until they are part of the cluster."""
        for _ in range(count):
            self.made += 1
            command: list[Any] = [RAY, "start", f"--address={self.address}", "--num-cpus=1", "--block"]
            command += [f"--node-ip-address=127.0.0.{self.made}", "--object-store-memory=100000000"]
            command += ["--include-log-monitor=false"]
            if self.apart:
                mount = 'mount -t tmpfs tmpfs "$0" && exec "$@"'
                command = ["unshare", "--mount", "--map-root-user", "sh", "-c", mount, self.disk, *command]
            self.workers.append(self._start(command, changes))
            self._wait_for(1 + len(self.workers))  # two that start at once may choose the same names

    def kill(self, number: int = 0) -> None:
        """Kill all processes of one of the machines at once."""
        end(self.workers.pop(number))

    def stop(self) -> None:
        for process in [*self.workers, self.head]:
            end(process)
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start(self, command: list[Any], changes: dict[str, str]) -> "subprocess.Popen[bytes]":
        environment = self.environment | self.token | changes
        return subprocess.Popen(command, env=environment, stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL)

    def _wait_for(self, count: int) -> None:
        code = """if True:
            import sys, time
            from ray._raylet import GcsClient
            nodes = GcsClient(sys.argv[1]).get_all_node_info
            for _ in range(300):
                if sum(node.state == 0 for node in nodes().values()) == int(sys.argv[2]):
                    sys.exit()
                time.sleep(0.2)
            sys.exit("too few")"""
        asked = [sys.executable, "-c", code, self.address, str(count)]
        said = subprocess.run(asked, env=self.environment | self.token, capture_output=True, text=True)
        if said.returncode:
            raise RuntimeError(said.stderr + (self.folder / "ray.log").read_text())


def end(process: "subprocess.Popen[bytes] | Forked") -> None:
    """Kill a process and all that it has started, so that none can say goodbye."""
    everyone = [process.pid, *descendants(process.pid)]
    for number in (signal.SIGSTOP, signal.SIGKILL):  # stopped first: none sees another go
        for pid in everyone:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
    process.wait()


def descendants(pid: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents.setdefault(int(entry.read_text().rpartition(")")[2].split()[1]), []).append(int(entry.parent.name))
    found = [pid]
    for each in found:
        found += parents.get(each, [])
    return found[1:]
