"""A stranger's installed package of experiments, a small Ray cluster, and a fresh directory for each command line."""

import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from commandline import CommandLine, clean_environment


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which the stranger's package is installed: importable, with its entry point."""
    site = tmp_path_factory.mktemp("site")
    shutil.copy(Path(__file__).with_name("stranger_lab.py"), site)
    facts = site / "stranger_lab-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger-lab\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("[featurelab.experiments]\nstranger = stranger_lab\n")
    return clean_environment(PYTHONPATH=str(site))


@pytest.fixture(scope="session")
def cluster(environment: dict[str, str]) -> Iterator[str]:
    """The address of a Ray cluster of four CPUs, as a machine elsewhere would offer it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    ray = Path(sys.executable).parent / "ray"
    folder = tempfile.mkdtemp(prefix="ray", dir="/tmp")  # its sockets need a short path
    command = [ray, "start", "--head", "--block", "--num-cpus=4", "--include-dashboard=false", f"--temp-dir={folder}"]
    command += ["--node-ip-address=127.0.0.1", f"--port={address.rpartition(':')[2]}"]
    with open(Path(folder) / "head.log", "w") as log:
        head = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    for _ in range(600):
        try:
            socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), timeout=1).close()
            break
        except OSError:
            assert head.poll() is None, (Path(folder) / "head.log").read_text()
            time.sleep(0.1)
    yield address
    head.terminate()
    try:
        head.wait(20)
    except subprocess.TimeoutExpired:
        head.kill()
        head.wait()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def featurelab(tmp_path: Path, environment: dict[str, str]) -> CommandLine:
    """The command in an empty directory, its sweeps on a Ray of their own."""
    return CommandLine(tmp_path, environment)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str], cluster: str) -> CommandLine:
    """The command in a directory that the tests of a module share, its sweeps on the cluster."""
    return CommandLine(tmp_path_factory.mktemp("lab"), environment | {"RAY_ADDRESS": cluster})
