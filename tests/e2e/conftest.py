"""Installed packages of experiments, a small Ray cluster, an MLflow server, a fresh directory for each command line."""

import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from commandline import CommandLine, clean_environment, import_path
from machines import one_machine
from mlflow_server import Points, Server


def installed(site: Path, name: str) -> None:
    """Install the file `<name>_lab.py` into a folder as a package of experiments: importable, with its entry point."""
    shutil.copy(Path(__file__).with_name(f"{name}_lab.py"), site)
    shutil.copy(Path(__file__).with_name("known.toml"), site)
    facts = site / f"{name}_lab-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}-lab\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(f"[featurelab.experiments]\n{name} = {name}_lab\n")


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which both packages are installed."""
    site = tmp_path_factory.mktemp("site")
    for name in ("stranger", "patient"):
        installed(site, name)
    return clean_environment(PYTHONPATH=import_path(site))


@pytest.fixture(scope="session")
def patient(environment: dict[str, str]) -> dict[str, str]:
    """The environment for trials that are cut short: with checkpoints every half second."""
    return environment | {"FEATURELAB_CHECKPOINT_SECONDS": "0.5"}


@pytest.fixture(scope="session")
def shared_server(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = Server(tmp_path_factory.mktemp("server"))
    shutil.copy(template, made.home / "mlflow.db")
    yield made
    made.stop()


@pytest.fixture
def server(shared_server: Server) -> Server:
    """A running MLflow server that all tests share; a test may stop it."""
    if shared_server.process is None:
        shared_server.start()
    return shared_server


@pytest.fixture(scope="session")
def cluster(environment: dict[str, str]) -> Iterator[str]:
    """The address of a Ray cluster of one CPU and two GPUs, as a machine elsewhere would offer it.

    One, because each process for trials takes a second: a sweep that needs two at once asks for half a CPU.
    """
    with one_machine(environment, cpus=1, gpus=2) as address:
        yield address


@pytest.fixture
def featurelab(tmp_path: Path, environment: dict[str, str], template: Path) -> CommandLine:
    """The command in an empty directory, its sweeps on a Ray of their own."""
    return CommandLine(tmp_path, environment, template)


@pytest.fixture(scope="module")
def lab(
    tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str], cluster: str, template: Path
) -> CommandLine:
    """The command in a directory that the tests of a module share, its sweeps on the cluster."""
    folder = tmp_path_factory.mktemp("modules")
    return CommandLine(folder, environment | {"RAY_ADDRESS": cluster}, template).desk("lab")


@pytest.fixture(scope="session")
def undisturbed() -> Points:
    """By seed, every point that a training has to say, said to a recorder in this process: no Ray, no MLflow."""

    import patient_lab

    from featurelab.pipelines.engine.trial.run import perform
    from featurelab.tracking.outbox.null import NullRecorder

    def points(seed: int) -> Counter[tuple[str, int, float | None]]:
        said: Counter[tuple[str, int, float | None]] = Counter()

        def listen(metrics: Mapping[str, float], step: int) -> None:
            said.update((name, step, value) for name, value in metrics.items())

        config = patient_lab.training.laptop.but(seed=seed, pause=0.0)
        perform(patient_lab.training, config, NullRecorder([listen]))
        return said

    return {seed: points(seed) for seed in range(4)}
