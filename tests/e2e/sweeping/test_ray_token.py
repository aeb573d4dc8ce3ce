"""A Ray cluster that asks for a token lets no driver in that has none, or another."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from commandline import OVER_TINY, CommandLine
from machines import Machines


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str]) -> Iterator[Machines]:
    """A cluster of one machine, which asks for a token."""
    made = Machines(environment, tmp_path_factory.mktemp("disk"))
    yield made
    made.stop()


@pytest.mark.parametrize("shown", [{}, {"RAY_AUTH_MODE": "token"}, {"RAY_AUTH_TOKEN": "0" * 64}])
def test_a_driver_without_the_token_is_told_so_in_one_line(
    featurelab: CommandLine, guarded: Machines, shown: dict[str, str], tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    soon = {"RAY_gcs_server_port_wait_time_s": "2"}  # in place of 20 s
    driver = featurelab.elsewhere(tmp_path / "desk", HOME=str(home), **soon, **shown)
    said = driver("sweep", "neural_feature_ansatz/init_scale", *OVER_TINY, "--address", guarded.address, code=2)
    assert said.err.count("\n") == 1
    for named in ("~/.ray/auth_token", "RAY_AUTH_TOKEN", guarded.address):
        assert named in said.err
    assert said.out == ""
    assert not list((tmp_path / "desk").iterdir())
