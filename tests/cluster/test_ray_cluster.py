"""The cluster templates are ones that Ray would start, and they install and serve what this checkout needs."""

import copy
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import ValidationError  # type: ignore[import-untyped]
from ray.autoscaler._private.util import prepare_config, validate_config

ROOT = Path(__file__).parents[2]
LISTS = ("initialization_commands", "setup_commands", "head_setup_commands", "worker_setup_commands")
STARTS = ("head_start_ray_commands", "worker_start_ray_commands")


@pytest.fixture(params=["ray_cluster.yaml", "ray_cluster_local.yaml"])
def template(request: pytest.FixtureRequest) -> dict[str, Any]:
    return yaml.safe_load((ROOT / request.param).read_text())


@pytest.fixture
def cloud() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "ray_cluster.yaml").read_text())


@pytest.fixture
def cluster(template: dict[str, Any]) -> dict[str, Any]:
    """The template as `ray up` completes it."""
    return prepare_config(copy.deepcopy(template))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A head node's home, with the checkout where the templates put it and a `ray` that says how it was called."""
    home, programs = tmp_path / "home", tmp_path / "bin"
    for folder in (home, programs):
        folder.mkdir()
    (home / "featurelab").symlink_to(ROOT)
    ray = programs / "ray"
    said = "$RAY_AUTH_MODE ray $* # autoscaler v2: $RAY_enable_autoscaler_v2"
    ray.write_text(f'#!/bin/bash\necho "{said}" >> {tmp_path}/called\n')
    ray.chmod(0o755)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "MLFLOW_TRACKING_URI", "FEATURELAB_OUTBOX"):
        monkeypatch.delenv(name, raising=False)
    return home


def bash(command: str) -> str:
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def commands(config: dict[str, Any], *keys: str) -> list[str]:
    return [command for key in keys or (*LISTS, *STARTS) for command in config.get(key, [])]


def pinned() -> dict[str, str]:
    return dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().split())


def test_ray_accepts_the_template(cluster: dict[str, Any]) -> None:
    validate_config(cluster)


def test_validation_refuses_an_unknown_key(cluster: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="gpu_workers"):
        validate_config(cluster | {"gpu_workers": 8})


def test_bash_accepts_every_command(template: dict[str, Any]) -> None:
    said = commands(template)
    assert len(said) >= 8
    for command in [*said, (ROOT / "ray_cluster_mlflow.sh").read_text()]:
        subprocess.run(["bash", "-n"], input=command, text=True, check=True)


def test_gpu_workers_scale_from_zero_and_the_head_runs_no_trials(cloud: dict[str, Any]) -> None:
    cluster = prepare_config(copy.deepcopy(cloud))
    types = cluster["available_node_types"]
    workers = {name: kind for name, kind in types.items() if name != cluster["head_node_type"]}
    assert types[cluster["head_node_type"]]["resources"] == {"CPU": 0}
    assert all(kind["min_workers"] == 0 < kind["max_workers"] <= cluster["max_workers"] for kind in workers.values())
    assert any(kind["resources"]["GPU"] > 0 for kind in workers.values())


def test_all_machines_of_ones_own_are_used() -> None:
    cluster = prepare_config(yaml.safe_load((ROOT / "ray_cluster_local.yaml").read_text()))
    (kind,) = cluster["available_node_types"].values()
    assert kind["min_workers"] == kind["max_workers"] == len(cluster["provider"]["worker_ips"]) > 0


def test_images_carry_the_pinned_ray_and_a_supported_python(cloud: dict[str, Any]) -> None:
    images = [value for key, value in cloud["docker"].items() if key.endswith("image")]
    assert images
    for image in images:
        assert re.fullmatch(rf"rayproject/ray:{re.escape(pinned()['ray'])}-py311(-gpu)?", image), image


def test_every_node_gets_the_checkout_and_what_is_installed_is_pinned(cluster: dict[str, Any]) -> None:
    assert cluster["file_mounts"][f"{home_in(cluster)}/featurelab"] == "."
    for kind in ("head_setup_commands", "worker_setup_commands"):
        first = next(command for command in cluster[kind] if "pip install" in command)
        assert first.startswith("cd ~/featurelab && ")
        assert "pip install --quiet --constraint constraints.txt" in first
        assert "--editable '.[lab,public,lm,search,server]'" in first
    for command in commands(cluster, *LISTS):
        for asked in re.findall(r"pip install (.*)", command):
            words = [word.strip("'") for word in asked.split() if not word.startswith("-")]
            exact = all(re.fullmatch(r"[\w-]+(\[\w+\])?==[\d.]+", word) for word in words)
            assert exact or asked.startswith("--quiet --constraint constraints.txt "), command


def home_in(cluster: dict[str, Any]) -> str:
    return "/home/ray" if cluster.get("docker") else "~"


def test_the_head_has_the_driver_of_postgresql(template: dict[str, Any]) -> None:
    assert any(re.search(r"\bpsycopg\[binary\]==3[\d.]+", command) for command in template["head_setup_commands"])


def test_every_node_gets_the_token_and_asks_for_it(template: dict[str, Any], home: Path, tmp_path: Path) -> None:
    assert template["file_mounts"][f"{home_in(template)}/.ray/auth_token"] == "~/.ray/auth_token"
    for command in commands(template, *STARTS):
        if "ray_cluster_mlflow" not in command:
            bash(f"export RAY_enable_autoscaler_v2=1 RAY_HEAD_IP=10.0.0.5; {command}")  # as `ray up` does
    started = [line for line in (tmp_path / "called").read_text().splitlines() if " ray start" in line]
    assert len(started) == 2
    folders = [re.search(r"--temp-dir=(/tmp/ray\.\w{6})/ray( |$)", line) for line in started]
    for folder in folders:
        assert folder, started
        assert Path(folder[1]).stat().st_mode & 0o777 == 0o700
        Path(folder[1]).rmdir()
    assert all(line.startswith("token ray start ") for line in started), started
    assert "--dashboard-host=127.0.0.1" in started[0]
    assert "--address=10.0.0.5:6379 " in started[1]
    # the newer autoscaler does not know machines of one's own
    assert started[0].endswith("v2: 0" if template["provider"]["type"] == "local" else "v2: 1")


def test_nothing_says_to_listen_to_the_world(template: dict[str, Any]) -> None:
    said = "\n".join([*commands(template), (ROOT / "ray_cluster_mlflow.sh").read_text()])
    assert not re.search(r"0\.0\.0\.0|--host[ =]\W*(::|\*)|insecure|disable-security", said)


def test_no_command_holds_the_address_of_a_database(template: dict[str, Any]) -> None:
    for command in commands(template):
        assert not re.search(r"backend-store|postgresql://|DATABASE", command), command


def test_a_driver_on_the_head_finds_token_server_and_a_lasting_outbox(template: dict[str, Any], home: Path) -> None:
    (home / "ray_bootstrap_config.yaml").write_text(json.dumps(template))  # as `ray up` leaves it there
    written = [command for command in commands(template, "setup_commands", "head_setup_commands") if ".sh" in command]
    for _ in range(2):  # `ray up` may run them again
        for command in written:
            bash(command)
    shown = dict(
        line.split("=", 1) for line in bash("env -i HOME=$HOME PATH=/bin bash -c '. ~/.bashrc; env'").splitlines()
    )
    own = template["provider"].get("head_ip")
    address = own or bash("hostname -I").split()[0]
    assert shown["MLFLOW_TRACKING_URI"] == f"http://{address}:5000"
    assert shown["RAY_AUTH_MODE"] == "token"
    assert shown["FEATURELAB_OUTBOX"] == f"{home}/results/outbox"
    assert int(shown["RAY_JOB_STOP_WAIT_TIME_S"]) > 30  # a sweep that is stopped waits for its workers first
    assert (home / ".bashrc").read_text().count("featurelab") == 1
    if own:
        assert shown["PATH"] == f"{home}/featurelab/.venv/bin:/bin"


def test_what_the_head_keeps_outlives_its_container(cloud: dict[str, Any]) -> None:
    assert "--volume=/home/ubuntu/results:/home/ray/results" in cloud["docker"]["head_run_options"]
    assert cloud["head_start_ray_commands"][-1] == "bash ~/featurelab/ray_cluster_mlflow.sh ~/results"


def test_machines_in_the_cloud_give_credentials_to_no_mere_get_request_and_encrypt_their_disks(
    cloud: dict[str, Any],
) -> None:
    nodes = [kind["node_config"] for kind in cloud["available_node_types"].values()]
    assert len(nodes) == 2
    for node in nodes:
        assert node["MetadataOptions"] == {"HttpTokens": "required", "HttpPutResponseHopLimit": 2}
        assert node["BlockDeviceMappings"]
        assert all(disk["Ebs"]["Encrypted"] is True for disk in node["BlockDeviceMappings"])
