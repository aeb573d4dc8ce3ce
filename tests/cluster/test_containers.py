"""The image and the Kubernetes manifest fit this checkout and each other.

The manifest is validated against what KubeRay's custom resource (`rayclusters.ray.io`, v1) says of the fields that it
uses: types, allowed values and required fields. Other fields are refused here, although the whole schema has thousands.
Neither Docker nor Kubernetes is needed.
"""

import copy
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
MANIFEST = list(yaml.safe_load_all((ROOT / "examples" / "kuberay.yaml").read_text()))
TEXT, COUNT, TEXTS = {"type": "string"}, {"type": "integer"}, {"type": "array", "items": {"type": "string"}}


def fields(*required: str, **properties: Any) -> dict[str, Any]:
    """The schema of an object that has these fields alone."""
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def several(item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": item}


QUANTITIES = {
    "type": "object",
    "additionalProperties": {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?([KMGT]i?)?$"},
}
CONTAINER = fields(
    "name",
    "image",
    "resources",
    name=TEXT,
    image=TEXT,
    command=TEXTS,
    args=TEXTS,
    env=several(fields("name", name=TEXT, value=TEXT)),
    ports=several(fields("containerPort", name=TEXT, containerPort=COUNT)),
    resources=fields(requests=QUANTITIES, limits=QUANTITIES),
    volumeMounts=several(fields("name", "mountPath", name=TEXT, mountPath=TEXT)),
)
VOLUME = fields("name", name=TEXT, emptyDir=fields(), persistentVolumeClaim=fields("claimName", claimName=TEXT))
POD = fields(
    "containers", containers=several(CONTAINER), volumes=several(VOLUME), securityContext=fields(fsGroup=COUNT)
)
START = {"rayStartParams": {"type": "object", "additionalProperties": TEXT}, "template": fields("spec", spec=POD)}
WORKERS = fields(
    "groupName",
    "minReplicas",
    "maxReplicas",
    "template",
    groupName=TEXT,
    replicas=COUNT,
    minReplicas=COUNT,
    maxReplicas=COUNT,
    **START,
)
CLUSTER = fields(
    "apiVersion",
    "kind",
    "spec",
    apiVersion={"const": "ray.io/v1"},
    kind={"const": "RayCluster"},
    metadata=fields("name", name=TEXT),
    spec=fields(
        "headGroupSpec",
        rayVersion=TEXT,
        authOptions=fields(mode={"enum": ["disabled", "token"]}),
        enableInTreeAutoscaling={"type": "boolean"},
        autoscalerOptions=fields(idleTimeoutSeconds=COUNT),
        headGroupSpec=fields("template", **START),
        workerGroupSpecs=several(WORKERS),
    ),
)


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile, with continued lines joined."""
    lines = re.sub(r"^#.*\n", "", DOCKERFILE, flags=re.MULTILINE).replace("\\\n", " ").splitlines()
    return [(name, rest.strip()) for name, _, rest in (line.partition(" ") for line in lines if line)]


def of_kind(kind: str) -> dict[str, Any]:
    (found,) = (document for document in MANIFEST if document["kind"] == kind)
    return found


def groups() -> list[dict[str, Any]]:
    spec = of_kind("RayCluster")["spec"]
    return [spec["headGroupSpec"], *spec["workerGroupSpecs"]]


def containers() -> list[dict[str, Any]]:
    return [container for group in groups() for container in group["template"]["spec"]["containers"]]


def pinned() -> dict[str, str]:
    return dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().split())


def test_the_image_installs_the_tested_versions_on_a_supported_python() -> None:
    (base,) = (rest for name, rest in instructions() if name == "FROM")
    assert re.fullmatch(r"python:3\.(11|12|13)-slim-\w+", base)
    installs = [rest for name, rest in instructions() if name == "RUN" and "pip install" in rest]
    assert len(installs) == 2
    assert all("--constraint constraints.txt" in rest for rest in installs)
    assert "'.[lab,public,lm,search,server]'" in installs[-1]


def test_shells_accept_every_step_of_the_image() -> None:
    for name, rest in instructions():
        if name == "RUN":
            subprocess.run(["sh", "-n"], input=rest, text=True, check=True)


@pytest.mark.parametrize(("device", "status"), [("cpu", 0), ("cuda", 0), ("tpu", 2)])
def test_the_build_argument_is_cpu_or_cuda(device: str, status: int, tmp_path: Path) -> None:
    (tmp_path / "pip").write_text('#!/bin/sh\necho "$@"\n')
    (tmp_path / "pip").chmod(0o755)
    (step,) = (rest for name, rest in instructions() if name == "RUN" and "$DEVICE" in rest)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "DEVICE": device}
    done = subprocess.run(["sh", "-c", step], env=environment, capture_output=True, text=True)
    assert done.returncode == status
    assert ("/whl/cpu" in done.stdout) == (device == "cpu")


def test_what_is_not_for_the_image_stays_out_of_it() -> None:
    ignored = set((ROOT / ".dockerignore").read_text().split())
    assert {".venv*", "mlflow.db*", "site", "report"} <= ignored
    assert not ignored & {".git", "pipelines", "modules", "tracking", "featurelab", "constraints.txt"}


def test_the_cluster_is_valid_in_kuberays_schema() -> None:
    cluster = of_kind("RayCluster")
    jsonschema.validate(cluster, CLUSTER)
    assert cluster["spec"]["authOptions"] == {"mode": "token"}
    for group in cluster["spec"]["workerGroupSpecs"]:
        assert 0 <= group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]


@pytest.mark.parametrize(
    ("place", "wrong"),
    [
        (("rayVersion",), 2.6),
        (("authOptions", "mode"), "tokens"),
        (("headGroupSpec", "rayStartParams", "num-cpus"), 0),
        (("workerGroupSpecs", 0, "maxreplicas"), 8),
    ],
)
def test_a_cluster_with_a_mistake_is_not_valid(place: tuple[str | int, ...], wrong: Any) -> None:
    cluster = copy.deepcopy(of_kind("RayCluster"))
    part = cluster["spec"]
    for name in place[:-1]:
        part = part[name]
    part[place[-1]] = wrong
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(cluster, CLUSTER)


def test_ray_and_python_are_those_of_the_image() -> None:
    assert of_kind("RayCluster")["spec"]["rayVersion"] == pinned()["ray"]
    assert len({container["image"] for container in containers()}) == 1


def test_the_head_runs_no_trial_and_workers_have_gpus() -> None:
    head, *workers = groups()
    assert head["rayStartParams"]["num-cpus"] == "0"
    for group in workers:
        (container,) = group["template"]["spec"]["containers"]
        assert int(container["resources"]["limits"]["nvidia.com/gpu"]) >= 1
        assert container["resources"]["limits"] == container["resources"]["requests"]


def test_every_pod_finds_the_store_and_mounts_volumes_that_exist() -> None:
    service = of_kind("Service")
    (port,) = service["spec"]["ports"]
    address = f"http://{service['metadata']['name']}:{port['port']}"
    for group in groups():
        spec = group["template"]["spec"]
        ray = spec["containers"][0]
        assert {"name": "MLFLOW_TRACKING_URI", "value": address} in ray["env"]
        volumes = {volume["name"] for volume in spec["volumes"]}
        assert all(mount["name"] in volumes for each in spec["containers"] for mount in each["volumeMounts"])
    (server,) = (container for container in containers() if container["name"] == "mlflow")
    words = [*server["command"], *server["args"]]
    assert words[words.index("--port") + 1] == str(port["port"])
    assert address.removeprefix("http://") in words[words.index("--allowed-hosts") + 1].split(",")
    claims = of_kind("PersistentVolumeClaim")["metadata"]["name"]
    assert any(
        v.get("persistentVolumeClaim") == {"claimName": claims} for v in groups()[0]["template"]["spec"]["volumes"]
    )


def test_only_pods_of_the_cluster_reach_the_store() -> None:
    name = of_kind("RayCluster")["metadata"]["name"]
    policy = of_kind("NetworkPolicy")["spec"]
    assert policy["podSelector"] == {"matchLabels": {"ray.io/cluster": name}}
    for rule in policy["ingress"]:
        inside = rule["from"] == [{"podSelector": {"matchLabels": {"ray.io/cluster": name}}}]
        assert inside or 5000 not in [port["port"] for port in rule["ports"]]
    assert of_kind("Service")["spec"]["selector"]["ray.io/cluster"] == name


def test_mlflow_takes_the_options_of_the_server() -> None:
    from mlflow.cli import server

    (container,) = (each for each in containers() if each["name"] == "mlflow")
    words = [*container["command"], *container["args"]]
    assert words[:2] == ["mlflow", "server"]
    known = {option for parameter in server.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known
