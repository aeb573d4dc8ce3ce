"""Whatever is typed, the command line answers a wrong request with one harmless line, status 2, and writes nothing."""

import hashlib
import json
import os
import socket
from collections.abc import Callable

import pytest
import yaml
from hostile import LONG, Commands, accept, commands, texts
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from featurelab.pipelines.engine.experiment import numbers
from featurelab.pipelines.engine.experiment.catalogue import registry
from featurelab.pipelines.engine.sweep.ray.cluster import connect_ray
from featurelab.tracking.lines import quoted
from featurelab.tracking.store.connect import connect

SCALE = "neural_feature_ansatz/init_scale"
FIELDS = ["lr", "width", "seed", "steps", "speeds", "optimizer", "init_scale", "precision", "threads"]

__all__ = ["commands"]


class Enough(Exception):
    """Ends what Hypothesis would go on with."""


def all_refused(
    commands: Commands, requests: st.SearchStrategy[list[str]], named: Callable[[list[str]], list[str]]
) -> None:
    """Ask until enough different ones were refused, each in a line that has one of `named(request)` in it."""
    seen: set[tuple[str, ...]] = set()

    @settings(
        max_examples=10 * commands.many,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(requests)
    def ask(request: list[str]) -> None:
        if len(seen) == commands.many:
            raise Enough
        line = commands.refusal(*request)
        if line is not None:
            assert any(part in line for part in named(request)), line
            seen.add(tuple(request))

    with pytest.raises(Enough):
        ask()


def shown(value: str) -> str:
    """The beginning of a value as a refusal shows it."""
    return quoted(value)[:16].rstrip("'\"")


def test_domains_of_axes(commands: Commands) -> None:
    requests = st.tuples(st.sampled_from(FIELDS), texts).map(
        lambda pair: ["sweep", SCALE, f"--over={pair[0]}={pair[1]}"]
    )

    def named(request: list[str]) -> list[str]:
        _, key, domain = request[2].split("=", 2)
        return [
            f"{key} = ",
            f"{key}.",
            shown(domain),
            "choice(",
            "uniform(",
            "randint(",
            "unknown domain",
            "too deep",
            *map(shown, {part.strip() for part in domain.split(",")}),
        ]

    all_refused(commands, requests, named)


def test_settings(commands: Commands) -> None:
    pairs = st.tuples(st.sampled_from(FIELDS), texts).map("=".join)
    requests = st.one_of(pairs, texts).filter(lambda text: text != "--help").map(lambda text: ["run", SCALE, text])

    def named(request: list[str]) -> list[str]:
        key, _, value = request[2].partition("=")
        return [f"{key} = ", f"{key}.", shown(key), shown(value), shown(request[2]), "ption"]

    all_refused(commands, requests, named)


def test_files_of_settings(commands: Commands) -> None:
    values = st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), texts),
        lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
        max_leaves=6,
    )
    mappings = st.dictionaries(st.one_of(st.sampled_from(FIELDS), texts), values, min_size=1, max_size=3)
    lines = st.lists(st.tuples(st.sampled_from(FIELDS), texts).map(": ".join), min_size=1, max_size=3).map("\n".join)
    written = st.one_of(mappings.map(json.dumps), mappings.map(yaml.safe_dump), lines, texts)
    deep = st.sampled_from(["[", "{a: ", "- ", "{", "lr: ["]).map(lambda part: part * 30_000)
    tagged = st.sampled_from(FIELDS).map(lambda name: f"{name}: !!python/object/apply:os.system ['touch x']")
    laughing = st.just("lr: &a [1, 1]\nwidth: &b [*a, *a]\nseed: [*b, *b]")
    contents = st.one_of(
        st.one_of(written, deep, tagged, laughing).map(lambda text: text.encode("utf-8", "surrogatepass")),
        st.binary(max_size=40),
    )

    def request(content: bytes) -> list[str]:
        path = commands.home.parent / f"settings-{hashlib.sha256(content).hexdigest()[:16]}.yaml"
        path.write_bytes(content)
        return ["run", SCALE, f"--config={path}"]

    named = [*(f"{name} = " for name in FIELDS), *(f"{name}." for name in FIELDS), "unknown setting", "settings-"]
    all_refused(commands, contents.map(request), lambda _: named)


def test_files_of_settings_that_cannot_be_read(commands: Commands) -> None:
    (commands.home.parent / "large.yaml").write_text("# " + LONG * "x" + "\nlr: 0.1\n")
    for name, says in (("absent.yaml", "no such file"), ("large.yaml", "more than 100,000 bytes"), ("", "a directory")):
        path = commands.home.parent / name
        for command in (["run", SCALE], ["sweep", SCALE]):
            said = commands.refusal(*command, f"--config={path}")
            assert said is not None
            assert says in said.lower()


def test_settings_given_twice(commands: Commands) -> None:
    for key in FIELDS:
        assert "twice" in (commands.refusal("run", SCALE, f"{key}=1", f"{key}=1") or "")
        assert "twice" in (commands.refusal("sweep", SCALE, f"--over={key}=1", f"--over={key}=1") or "")


def test_names_of_sweeps(commands: Commands) -> None:
    requests = texts.map(lambda text: ["sweep", SCALE, "--over=lr=0.1", f"--name={text}"])
    all_refused(commands, requests, lambda request: [f"--name {shown(request[3][7:])}"])


def test_names_of_experiments_systems_and_datasets(commands: Commands) -> None:
    known = {*registry.systems(), *(experiment.name for experiment in registry.experiments())}
    # "show 18" shows Fig. 18
    names = texts.filter(lambda text: not text.startswith("-") and text not in known and numbers.wanted(text) is None)
    forms = [["show"], ["run"], ["sweep"], ["reproduce"], ["list"], ["data", "check"], ["data", "fetch"]]
    near = st.tuples(
        st.sampled_from(sorted(known)), st.sampled_from(["/../x", "/.", "\x00", "\n", " ", "/", "\u202e"])
    ).map("".join)
    requests = st.tuples(st.sampled_from(forms), st.one_of(names, near)).map(lambda pair: [*pair[0], pair[1]])
    all_refused(commands, requests, lambda request: [shown(request[-1])])


def test_numbers_of_options(commands: Commands) -> None:
    options = ["samples", "cpus-per-trial", "gpus-per-trial", "workers-per-trial", "trial-timeout"]
    sweeps = st.tuples(st.sampled_from(options), texts).map(lambda pair: ["sweep", SCALE, f"--{pair[0]}={pair[1]}"])
    ports = texts.map(lambda text: ["ui", f"--port={text}"])
    all_refused(
        commands, st.one_of(sweeps, ports), lambda request: [request[-1].partition("=")[0], "trials is too large"]
    )


def test_addresses_of_clusters(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    monkeypatch.setattr(ray, "init", accept)
    monkeypatch.setattr("featurelab.pipelines.engine.sweep.ray.cluster.connect_ray", connect_ray)
    monkeypatch.setattr(socket, "getaddrinfo", no_names)
    with_ports = st.tuples(texts, st.sampled_from([":1", ":0", ":99999", ":-1", ":x"])).map("".join)
    requests = st.one_of(texts, with_ports).map(lambda text: ["sweep", SCALE, "--over=lr=0.1", f"--address={text}"])
    all_refused(commands, requests, lambda request: ["Ray"])


def test_folders_for_the_report(commands: Commands) -> None:
    (commands.home / "file").touch()
    (commands.home / "loop").symlink_to("loop")
    bad = st.one_of(
        st.tuples(st.just("file/"), texts.filter(lambda text: text.strip("./") and not text.startswith("..")))
        .map("".join)
        .filter(lambda text: "/.." not in text and "@" not in text),
        st.tuples(texts, st.just("\0"), texts).map("".join),
        st.integers(256, 9000).map(lambda length: "new/" + "n" * length),
        st.sampled_from(["loop", "loop/x", "/proc/x", "/dev/null", "/dev/null/x"]),
    )
    all_refused(commands, bad.map(lambda text: ["report", f"--out={text}"]), lambda request: ["--out"])


def test_places_of_stores(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("featurelab.tracking.store.connect.connect", connect)
    monkeypatch.setattr(socket, "getaddrinfo", no_names)
    schemes = [
        "",
        "sqlite:///",
        "sqlite:",
        "sqlite+x:///",
        "SQLITE:///",
        "http://",
        "https://u:hunter2-x@",
        "postgresql://",
    ]
    schemes += [
        "file:",
        "mysql://u:hunter2-x@",
        "databricks",
        "databricks://",
        "ftp://",
        "s3://",
        "mlflow-artifacts:/",
        "uc:",
    ]
    places = st.tuples(st.sampled_from(schemes), texts).map("".join).filter(can_be_in_the_environment)
    places = places.filter(lambda place: not ("sqlite" in place.lower() and "@" in place))  # there it is part of a path
    seen: set[str] = set()

    @settings(
        max_examples=commands.many + commands.many // 5,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
    )
    @given(places)
    def ask(place: str) -> None:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", place)
        assert "store" in str(commands.refusal("judge", "0123456789abcdef")), place
        seen.add(place)

    ask()
    assert len(seen) >= commands.many


def test_ids_of_runs_and_names_to_resume(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    store = connect(f"sqlite:///{commands.home / 'mlflow.db'}", timeout=60)
    monkeypatch.setattr("featurelab.tracking.store.connect.connect", lambda **options: store)
    forms = [["judge"], ["rerun"], ["compare"], ["sweep", SCALE, "--resume"]]
    ids = texts.filter(lambda text: text and not text.startswith("-"))
    requests = st.tuples(st.sampled_from(forms), ids).map(lambda pair: [*pair[0], pair[1]])
    requests = requests.map(lambda request: [*request, "0123"] if request[0] == "compare" else request)
    all_refused(commands, requests, lambda request: [shown(part) for part in request[1:]])
    assert len(store.client.search_experiments()) == 1
    assert store.client.search_runs(["0"]) == []


def no_names(host: object, *rest: object, **options: object) -> object:
    """Looks no name up; addresses of this machine are left."""
    if host in ("127.0.0.1", "localhost", "::1"):
        return look_up(host, *rest, **options)  # type: ignore[arg-type]
    str(host).encode("idna")  # as the real one, which raises UnicodeError for what cannot be a name
    raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")


look_up = socket.getaddrinfo


def can_be_in_the_environment(text: str) -> bool:
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False
