"""A store of runs: what can be written to and read from it, and how a write survives a busy moment."""

from __future__ import annotations

import atexit
import json
import os
import re
import stat
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar

from mlflow import MlflowClient
from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, Run, RunInfo, RunTag
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import TEMPORARILY_UNAVAILABLE
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import SQLAlchemyError
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_exponential_jitter

from featurelab.tracking.errors import BadArtifact, RunGone, RunNotFound, StoreError, StoreGone, disk_full
from featurelab.tracking.lines import line, quoted
from featurelab.tracking.store import artifacts, workarounds
from featurelab.tracking.store.answers import is_transient
from featurelab.tracking.store.artifacts import checked
from featurelab.tracking.store.bookkeeping import stored, with_plain_tags
from featurelab.tracking.store.checkpoint import checkpoint
from featurelab.tracking.store.places import artifact_folder, identity, local

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

T = TypeVar("T")

RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,255}")
EXPERIMENT_TAGS = {"mlflow.experimentKind": "custom_model_development"}  # as MLflow's own pages mark such
ITEMS_PER_REQUEST = 100  # MLflow's bound on params and tags
POINTS_PER_REQUEST = 800  # with tags and params beside them; MLflow's bound on all together is 1000

_ids: dict[tuple[str, str], str] = {}  # of experiments, by store and name: a worker starts many runs in each

_files: dict[str, tuple[int, int]] = {}  # what the SQLite files were that this process has opened, by address

_places: dict[str, str] = {}  # of the artifacts of runs that this process started and that have not ended


workarounds.apply()


@dataclass(frozen=True)
class Store:
    """A place where runs are kept. What meets a busy store is repeated for up to `patience` seconds.

    Every method raises StoreError once patience is at an end, MlflowException at once for what repeating cannot mend.
    """

    uri: str
    client: MlflowClient
    patience: float = 60.0

    def experiment_id(self, name: str) -> str:
        """Return the id of the experiment `name`: found, restored if it was deleted, or created."""
        found = self.patiently(self.client.get_experiment_by_name, name)
        if found is None:
            try:
                where = self._artifact_location(name)
                return self.patiently(
                    self.client.create_experiment, name, artifact_location=where, tags=EXPERIMENT_TAGS
                )
            except MlflowException as error:
                if error.error_code != "RESOURCE_ALREADY_EXISTS":
                    raise
            found = self.patiently(self.client.get_experiment_by_name, name)  # another process was faster
            assert found is not None
        if found.lifecycle_stage == "deleted":
            self.patiently(self.client.restore_experiment, found.experiment_id)
        for key, value in EXPERIMENT_TAGS.items():
            if found.tags.get(key) != value:
                self.patiently(self.client.set_experiment_tag, found.experiment_id, key, value)
        return found.experiment_id

    def find_experiment(self, name: str) -> str | None:
        """Return the id of the experiment `name`, None where there is none, without writing anything."""
        found = self.patiently(self.client.get_experiment_by_name, name)
        return found.experiment_id if found is not None else None

    def start_run(
        self, experiment: str, run_name: str, *, tags: Mapping[str, Any] = {}, params: Mapping[str, Any] = {}
    ) -> str:
        """Start a run in the experiment of that name (made if need be) and return its id."""
        run_id = self._create_run(experiment, run_name, tags)
        self.log_metrics(run_id, [], params=params)
        return run_id

    def _create_run(self, experiment: str, run_name: str, tags: Mapping[str, Any]) -> str:
        token = uuid.uuid4().hex
        labels = {stored(key): str(value) for key, value in tags.items()} | {"mlflow.startToken": token}
        known = _ids.get((self.uri, experiment))
        experiment_id = _ids[self.uri, experiment] = known or self.experiment_id(experiment)
        tried = False

        def create() -> RunInfo:
            nonlocal tried
            if tried:  # the answer may have been lost after the run was made: do not make a second one
                made = self.client.search_runs([experiment_id], f"tags.`mlflow.startToken` = '{token}'", max_results=1)
                if made:
                    return made[0].info
            tried = True
            info = self.client.create_run(experiment_id, tags=labels, run_name=run_name).info
            _require_run(info.run_id)
            return info

        try:
            info = self.patiently(create)
            if not self.uri.startswith("databricks"):  # where it takes a profile too
                _places[info.run_id] = info.artifact_uri
            return str(info.run_id)
        except MlflowException:
            del _ids[self.uri, experiment]
            if not known:
                raise
            return self._create_run(experiment, run_name, tags)  # it has been deleted since we last looked

    def end_run(self, run_id: str, status: str = "FINISHED", end_time: int | None = None) -> None:
        """End a run as FINISHED, FAILED or KILLED, at `end_time` (milliseconds since the epoch) or now."""
        self.patiently(self.client.set_terminated, run_id, status, end_time)
        _places.pop(run_id, None)

    def reopen_run(self, run_id: str) -> None:
        """Reopen a run that had ended."""
        self.patiently(self.client.update_run, run_id, "RUNNING")

    def get_run(self, run_id: str) -> Run:
        """Return the run. Raises RunNotFound, for an id that could not be one too."""
        if not RUN_ID.fullmatch(run_id):
            raise RunNotFound(f"there is no run {quoted(run_id)} in {shown(self.uri)}")

        def get() -> Run:
            run = self.client.get_run(run_id)
            _require_run(run.info.run_id)
            return run

        try:
            return with_plain_tags(self.patiently(get))
        except MlflowException as error:
            if error.error_code in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
                raise RunNotFound(f"there is no run {quoted(run_id)} in {shown(self.uri)}") from error
            raise

    def set_tags(self, run_id: str, tags: Mapping[str, Any]) -> None:
        """Set tags, replacing those of the same name."""
        self.log_metrics(run_id, [], tags)

    def log_metrics(
        self, run_id: str, metrics: Sequence[Metric], tags: Mapping[str, Any] = {}, params: Mapping[str, Any] = {}
    ) -> None:
        """Send points, and tags and params with them. Sending the same again stores nothing twice."""
        labels = [RunTag(stored(key), str(value)) for key, value in tags.items()]
        settings = [Param(key, str(value)) for key, value in params.items()]
        while metrics or labels or settings:
            some, few, fixed = metrics[:POINTS_PER_REQUEST], labels[:ITEMS_PER_REQUEST], settings[:ITEMS_PER_REQUEST]
            self.patiently(self.client.log_batch, run_id, metrics=some, params=fixed, tags=few)
            metrics, labels, settings = metrics[len(some) :], labels[len(few) :], settings[len(fixed) :]

    def log_dataset(
        self, run_id: str, name: str, digest: str, profile: Mapping[str, Any], context: str = "train"
    ) -> None:
        """Name the data that a run used: a digest of its content (36 characters at most) and what describes it."""
        text = json.dumps(profile, default=artifacts.plain)
        source = json.dumps({"name": name})
        data = Dataset(name, digest, source_type="code", source=source, profile=text)
        self.patiently(self.client.log_inputs, run_id, [DatasetInput(data, [InputTag("mlflow.data.context", context)])])

    def log_json(self, run_id: str, obj: Any, path: str) -> None:
        """Store `obj` as JSON at `path`."""
        with self._staging(run_id) as root:
            artifacts.write_json(root, path, obj)

    def log_text(self, run_id: str, text: str, path: str) -> None:
        """Store a text at `path`."""
        with self._staging(run_id) as root:
            artifacts.place(root, path).write_text(text)

    def log_file(self, run_id: str, local: Path, directory: str = "") -> None:
        """Store a file or a whole directory under `directory`."""
        if not Path(local).exists():
            raise FileNotFoundError(f"{local} does not exist")
        send = self.client.log_artifacts if Path(local).is_dir() else self.client.log_artifact
        where = str(Path(directory) / Path(local).name) if Path(local).is_dir() else directory
        self.patiently(send, run_id, str(local), where or None)

    def log_tree(self, run_id: str, root: Path) -> None:
        """Store everything under `root` at the same relative paths."""
        if run_id in _places:
            repository = get_artifact_repository(_places[run_id], tracking_uri=self.uri)
            self.patiently(repository.log_artifacts, str(root))
        else:
            self.patiently(self.client.log_artifacts, run_id, str(root))

    def log_figure(self, run_id: str, figure: Figure, stem: str) -> None:
        """Store a matplotlib figure as `<stem>.png` and `<stem>.svg`."""
        with self._staging(run_id) as root:
            artifacts.write_figure(root, stem, figure)

    def log_table(self, run_id: str, table: pd.DataFrame, path: str) -> None:
        """Store a table as `.csv` or `.parquet`."""
        with self._staging(run_id) as root:
            artifacts.write_table(root, path, table)

    def log_mlflow_table(self, run_id: str, table: pd.DataFrame, path: str) -> None:
        """Store a table as `mlflow.log_table` does (`.json`), so that MLflow's pages compare it across runs.

        Unlike `mlflow.log_table` it replaces an older table of that name rather than append to it.
        """
        tag = "mlflow.loggedArtifacts"
        with self._staging(run_id) as root:
            table.to_json(artifacts.place(root, path), orient="split", index=False, date_format="iso")
        known = json.loads(self.get_run(run_id).data.tags.get(tag, "[]"))
        entry = {"path": path, "type": "table"}
        if entry not in known:
            self.set_tags(run_id, {tag: json.dumps([*known, entry])})

    def artifact_paths(self, run_id: str, directory: str) -> list[str]:
        """Return the paths of the files and directories in an artifact directory; none where it is missing."""
        return [entry.path for entry in self.patiently(self.client.list_artifacts, run_id, directory)]

    def delete_artifacts(self, run_id: str, path: str) -> None:
        """Delete an artifact, a file or a directory. Raises MlflowException where they cannot be deleted.

        On this machine's own disks nothing is deleted outside the folder of a SQLite store: the address is the store's,
        which others may have written. Raises StoreError there.
        """
        uri, root = self.get_run(run_id).info.artifact_uri, self._file_folder()
        if (place := local(uri)) and not (root and (place / checked(path)).resolve().is_relative_to(root)):
            raise StoreError(f"the artifacts of run {run_id} do not lie in the folder of the store: {line(uri, 200)}")
        repository = get_artifact_repository(uri, tracking_uri=self.uri)
        self.patiently(repository.delete_artifacts, checked(path))

    def download(self, run_id: str, path: str, into: Path | None = None) -> Path:
        """Return a local path of an artifact, a file or a directory: a copy in the directory `into`, where given.

        Raises RunNotFound, BadArtifact where the run has no such artifact, or StoreError.
        """
        self.get_run(run_id)
        try:
            return Path(self.patiently(self.client.download_artifacts, run_id, path, str(into) if into else None))
        except (OSError, MlflowException) as error:
            raise BadArtifact(f"run {run_id} has no artifact {path!r}") from error

    def read_json(self, run_id: str, path: str) -> Any:
        """Return what `log_json` stored. Raises as `read_bytes`, and BadArtifact for what is not JSON."""
        try:
            return json.loads(self.read_bytes(run_id, path))
        except (ValueError, RecursionError) as error:
            raise BadArtifact(f"artifact {path!r} of run {run_id} is not JSON") from error

    def read_bytes(self, run_id: str, path: str) -> bytes:
        """Return the content of an artifact. Raises as `download`, and BadArtifact for what is not a plain file."""
        file = self.download(run_id, path)
        try:
            if not stat.S_ISREG(file.lstat().st_mode):
                raise BadArtifact(f"artifact {path!r} of run {run_id} is not a plain file")
            return file.read_bytes()
        except OSError as error:
            raise BadArtifact(f"artifact {path!r} of run {run_id} cannot be read: {error.strerror}") from error

    def _artifact_location(self, experiment: str) -> str | None:
        if not self.uri.startswith("sqlite:"):
            return None
        return str(artifact_folder(sqlite_path(self.uri), experiment))

    def _file_folder(self) -> Path | None:
        return sqlite_path(self.uri).parent.resolve() if self.uri.startswith("sqlite:") else None

    @contextmanager
    def _staging(self, run_id: str) -> Iterator[Path]:
        with TemporaryDirectory() as root:
            yield Path(root)
            self.log_tree(run_id, Path(root))

    def require_in_place(self) -> None:
        """Raise StoreGone where the SQLite file is not the one that this process has opened: what it takes is lost."""
        if self.uri.startswith("sqlite:"):
            path = _file_of(self.uri)
            found = identity(path)
            self.expect(found)
            if found is None or _files[self.uri] != found:
                raise StoreGone(f"the store {line(str(path), 200)} was removed or replaced while it was in use")

    @property
    def file(self) -> tuple[int, int] | None:
        """Which file the SQLite store was when this process opened it: for `expect` in another process."""
        return _files.get(self.uri)

    def expect(self, file: tuple[int, int] | None) -> None:
        """Take no other file for the store, unless this process has opened one already: the path may lead elsewhere."""
        if file is not None and self.uri not in _files:
            _files[self.uri] = file
            atexit.register(_at_exit, self, os.getpid())  # later registrations run earlier: recorders send before it

    def close(self) -> None:
        """Let go of a SQLite file, so that a copy of it alone is the whole store; the next call opens it again.

        While another process writes, some of what it wrote stays in the write-ahead log beside the file.
        """
        if not self.uri.startswith("sqlite:") or _files.get(self.uri) != identity(_file_of(self.uri)):
            return
        with suppress(SQLAlchemyError):
            self.client._tracking_client.store.engine.dispose()
        checkpoint(_file_of(self.uri))

    def require_active(self, run_id: str) -> None:
        """Raise RunGone where a run has been deleted."""
        try:
            run = self.get_run(run_id)
        except RunNotFound as error:
            raise RunGone(str(error)) from None
        if run.info.lifecycle_stage == "deleted":
            raise RunGone(f"run {run_id} was deleted from the store")

    def patiently(self, call: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Repeat `call` while the store is busy or away, waiting ever longer, until patience is at an end."""
        again = Retrying(
            retry=retry_if_exception(is_transient),
            wait=wait_exponential_jitter(initial=0.1, max=8, jitter=0.5),
            stop=stop_after_delay(self.patience),
            reraise=True,
        )
        self.require_in_place()
        try:
            return again(call, *args, **kwargs)
        except Exception as error:
            if is_full(error):
                raise StoreError(f"the store at {shown(self.uri)} cannot be written: the disk is full") from error
            if not is_transient(error):
                raise
            raise StoreError(f"the store at {shown(self.uri)} cannot be reached: {first_line(error)}") from error


def _at_exit(store: Store, process: int) -> None:
    if os.getpid() == process:  # not in a forked child, which shares the connections
        store.close()


def _require_run(run_id: str) -> None:
    """Raise what is repeated, where an answer is JSON and of no run."""
    if not run_id:
        raise MlflowException("the answer names no run", error_code=TEMPORARILY_UNAVAILABLE)


@cache
def _file_of(uri: str) -> Path:
    return sqlite_path(uri)


def is_full(error: BaseException) -> bool:
    """Say whether the disk of the store, or the one where the artifacts lie, is full."""
    return "database or disk is full" in str(error) or bool(disk_full(error))


def shown(uri: str) -> str:
    """The address without a password that may stand in it, in one line."""
    return line(uri, 200)


def first_line(error: BaseException) -> str:
    """What is wrong, in one line: the innermost reason where `requests` nests several."""
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    reasons = re.findall(
        r"(Connection refused|Name or service not known|Temporary failure in name resolution|timed out)", text
    )
    return reasons[-1].lower() if reasons else line(re.sub(r"^\(\w+\.\w+\) ", "", text), 300)


def sqlite_path(uri: str) -> Path:
    """The file that a SQLite address names. Raises StoreError for an address that names none."""
    try:
        database = make_url(uri).database or ":memory:"
        path = Path(database).absolute()
        with suppress(FileNotFoundError, NotADirectoryError):
            os.stat(str(path).encode())  # a name that is too long, or no text
    except (SQLAlchemyError, OSError, ValueError) as error:
        advice = "write sqlite:///mlflow.db"
        raise StoreError(f"the store {shown(uri)} names no file ({first_line(error)}): {advice}") from error
    if database == ":memory:":
        raise StoreError(f"the store {shown(uri)} lives in memory and would be lost; name a file: sqlite:///mlflow.db")
    return path


def sqlite_uri(path: Path) -> str:
    """The address of a SQLite file, with %, ? and # quoted as SQLAlchemy reads them."""
    return URL.create("sqlite", database=str(path)).render_as_string()
