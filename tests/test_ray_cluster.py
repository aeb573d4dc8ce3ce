"""The cluster template is one that Ray would start, and it installs and serves what this checkout needs."""

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import ValidationError  # type: ignore[import-untyped]
from ray.autoscaler._private.util import prepare_config, validate_config

ROOT = Path(__file__).parents[1]


@pytest.fixture
def template() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "ray_cluster.yaml").read_text())


@pytest.fixture
def cluster(template: dict[str, Any]) -> dict[str, Any]:
    """The template as `ray up` completes it."""
    return prepare_config(copy.deepcopy(template))


def commands(config: dict[str, Any]) -> str:
    return "\n".join(command for key, value in config.items() if key.endswith("commands") for command in value)


def test_ray_accepts_the_template(cluster: dict[str, Any]) -> None:
    validate_config(cluster)


def test_validation_refuses_an_unknown_key(cluster: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="gpu_workers"):
        validate_config(cluster | {"gpu_workers": 8})


def test_gpu_workers_scale_from_zero_and_the_head_runs_no_trials(cluster: dict[str, Any]) -> None:
    types = cluster["available_node_types"]
    workers = {name: kind for name, kind in types.items() if name != cluster["head_node_type"]}
    assert types[cluster["head_node_type"]]["resources"] == {"CPU": 0}
    assert all(kind["min_workers"] == 0 < kind["max_workers"] <= cluster["max_workers"] for kind in workers.values())
    assert any(kind["resources"]["GPU"] > 0 for kind in workers.values())


def test_images_carry_the_pinned_ray_and_a_supported_python(template: dict[str, Any]) -> None:
    pinned = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().split())
    images = [value for key, value in template["docker"].items() if key.endswith("image")]
    assert images
    for image in images:
        assert re.fullmatch(rf"rayproject/ray:{re.escape(pinned['ray'])}-py311(-gpu)?", image), image


def test_the_checkout_is_shipped_and_installed_with_its_constraints_on_every_node(cluster: dict[str, Any]) -> None:
    assert cluster["file_mounts"] == {"/home/ray/featurelab": "."}
    install = "pip install --quiet --constraint constraints.txt --editable '.[public]'"
    for kind in ("head_setup_commands", "worker_setup_commands"):
        assert f"cd ~/featurelab && {install}" in cluster[kind]


def test_nothing_listens_beyond_the_private_network(template: dict[str, Any]) -> None:
    said = commands(template)
    assert "0.0.0.0" not in said
    assert "--dashboard-host=127.0.0.1" in said
    serve = next(command for command in template["head_start_ray_commands"] if "mlflow server" in command)
    assert "address=$(hostname -I | cut -d' ' -f1)" in serve
    assert "--host $address" in serve


def test_the_driver_is_told_of_the_server_that_the_head_starts(template: dict[str, Any]) -> None:
    ports = set(re.findall(r"(?:--port|:)[ =]?(5\d{3})\b", commands(template)))
    assert ports == {"5000"}
    assert "export MLFLOW_TRACKING_URI=http://$(hostname -I | cut -d' ' -f1):5000" in commands(template)
