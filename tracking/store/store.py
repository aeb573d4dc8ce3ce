"""A store of runs: write them, and read a single run and its artifacts."""

from __future__ import annotations

import json
import stat
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, Run, RunInfo, RunTag
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import TEMPORARILY_UNAVAILABLE
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

from featurelab.tracking.errors import BadArtifact, RunGone, RunNotFound, StoreError
from featurelab.tracking.lines import line, quoted
from featurelab.tracking.store import artifacts, bulk, workarounds
from featurelab.tracking.store.addresses import RUN_ID, shown, sqlite_path
from featurelab.tracking.store.artifacts import checked
from featurelab.tracking.store.bookkeeping import stored, with_plain_tags
from featurelab.tracking.store.connection import Connection
from featurelab.tracking.store.places import artifact_folder, local
from featurelab.tracking.store.points import Point

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

EXPERIMENT_TAGS = {"mlflow.experimentKind": "custom_model_development"}  # the mark of MLflow's own pages
ITEMS_PER_REQUEST = 100  # params, or tags: MLflow's bound
POINTS_PER_REQUEST = 800  # beside tags and params: MLflow's bound on all together is 1000
POINTS_PER_TRANSACTION = 4000  # of an SQLite file: each transaction costs a commit, and writes the last pages again

_experiment_ids: dict[tuple[str, str], str] = {}  # by address and name: a worker starts many runs in each experiment
_artifact_uris: dict[str, str] = {}  # by run id, for runs that this process started and that have not ended

workarounds.apply()


@dataclass(frozen=True)
class Store(Connection):
    """A store of runs at the address `uri`.

    Every method repeats requests to a busy store, and raises StoreError when `patience` (seconds) ends. It raises
    MlflowException at once for an error that repeating cannot cure.
    """

    @property
    def most_points(self) -> int:
        """How many points `log_metrics` sends at once."""
        return POINTS_PER_TRANSACTION if self.uri.startswith("sqlite:") else POINTS_PER_REQUEST

    def experiment_id(self, name: str) -> str:
        """Return the id of the experiment `name`. Restores it if it was deleted, and creates it if it is missing."""
        experiment = self.patiently(self.client.get_experiment_by_name, name)
        if experiment is None:
            try:
                location = self._artifact_location(name)
                return self.patiently(
                    self.client.create_experiment, name, artifact_location=location, tags=EXPERIMENT_TAGS
                )
            except MlflowException as error:
                if error.error_code != "RESOURCE_ALREADY_EXISTS":
                    raise
            experiment = self.patiently(self.client.get_experiment_by_name, name)  # another process was faster
            assert experiment is not None
        if experiment.lifecycle_stage == "deleted":
            self.patiently(self.client.restore_experiment, experiment.experiment_id)
        for key, value in EXPERIMENT_TAGS.items():
            if experiment.tags.get(key) != value:
                self.patiently(self.client.set_experiment_tag, experiment.experiment_id, key, value)
        return experiment.experiment_id

    def find_experiment(self, name: str) -> str | None:
        """Return the id of the experiment `name`, or None if there is none. Writes nothing."""
        experiment = self.patiently(self.client.get_experiment_by_name, name)
        return experiment.experiment_id if experiment is not None else None

    def start_run(
        self, experiment: str, run_name: str, *, tags: Mapping[str, Any] = {}, params: Mapping[str, Any] = {}
    ) -> str:
        """Start a run in the experiment of that name, created if missing, and return the run's id."""
        run_id = self._create_run(experiment, run_name, tags)
        self.log_metrics(run_id, [], params=params)
        return run_id

    def _create_run(self, experiment: str, run_name: str, tags: Mapping[str, Any]) -> str:
        token = uuid.uuid4().hex
        labels = {stored(key): str(value) for key, value in tags.items()} | {"mlflow.startToken": token}
        cached_id = _experiment_ids.get((self.uri, experiment))
        experiment_id = _experiment_ids[self.uri, experiment] = cached_id or self.experiment_id(experiment)
        is_repeated = False

        def create() -> RunInfo:
            nonlocal is_repeated
            if is_repeated:  # the run may exist although the answer was lost: do not create a second one
                with_token = f"tags.`mlflow.startToken` = '{token}'"
                if created := self.client.search_runs([experiment_id], with_token, max_results=1):
                    return created[0].info
            is_repeated = True
            info = self.client.create_run(experiment_id, tags=labels, run_name=run_name).info
            _require_id(info.run_id)
            return info

        try:
            info = self.patiently(create)
            if not self.uri.startswith("databricks"):  # there the address alone is not enough
                _artifact_uris[info.run_id] = info.artifact_uri
            return str(info.run_id)
        except MlflowException:
            del _experiment_ids[self.uri, experiment]
            if not cached_id:
                raise
            return self._create_run(experiment, run_name, tags)  # the experiment was deleted since its id was cached

    def end_run(self, run_id: str, status: str = "FINISHED", end_time: int | None = None) -> None:
        """End a run as FINISHED, FAILED or KILLED, at `end_time` (milliseconds since the epoch) or now."""
        self.patiently(self.client.set_terminated, run_id, status, end_time)
        _artifact_uris.pop(run_id, None)

    def reopen_run(self, run_id: str) -> None:
        """Set the status of a run that has ended to RUNNING again."""
        self.patiently(self.client.update_run, run_id, "RUNNING")

    def get_run(self, run_id: str) -> Run:
        """Return the run. Raises RunNotFound for an unknown or invalid id."""
        if not RUN_ID.fullmatch(run_id):
            raise RunNotFound(f"there is no run {quoted(run_id)} in {shown(self.uri)}")

        def get() -> Run:
            run = self.client.get_run(run_id)
            _require_id(run.info.run_id)
            return run

        try:
            return with_plain_tags(self.patiently(get))
        except MlflowException as error:
            if error.error_code in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
                raise RunNotFound(f"there is no run {quoted(run_id)} in {shown(self.uri)}") from error
            raise

    def set_tags(self, run_id: str, tags: Mapping[str, Any]) -> None:
        """Set tags of a run, replacing those of the same name."""
        self.log_metrics(run_id, [], tags)

    def log_metrics(
        self,
        run_id: str,
        metrics: Sequence[Point | Metric],
        tags: Mapping[str, Any] = {},
        params: Mapping[str, Any] = {},
    ) -> None:
        """Send points, tags and params. Sending the same again stores nothing twice."""
        texts = {stored(key): str(value) for key, value in tags.items()}
        param_texts = {key: str(value) for key, value in params.items()}
        is_bulk = self.uri.startswith("sqlite:") and bool(metrics or texts or param_texts)
        if is_bulk and self.patiently(bulk.insert, self.client, run_id, metrics, texts, param_texts):
            return
        run_tags = [RunTag(key, text) for key, text in texts.items()]
        run_params = [Param(key, text) for key, text in param_texts.items()]
        while metrics or run_tags or run_params:
            batch = {
                "metrics": [m.as_metric() if isinstance(m, Point) else m for m in metrics[:POINTS_PER_REQUEST]],
                "params": run_params[:ITEMS_PER_REQUEST],
                "tags": run_tags[:ITEMS_PER_REQUEST],
            }
            self.patiently(self.client.log_batch, run_id, **batch)
            metrics = metrics[POINTS_PER_REQUEST:]
            run_params, run_tags = run_params[ITEMS_PER_REQUEST:], run_tags[ITEMS_PER_REQUEST:]

    def log_dataset(
        self, run_id: str, name: str, digest: str, profile: Mapping[str, Any], context: str = "train"
    ) -> None:
        """Name the data that a run used, by a digest of at most 36 characters and a profile that describes the data."""
        text = json.dumps(profile, default=artifacts.plain)
        source = json.dumps({"name": name})
        data = Dataset(name, digest, source_type="code", source=source, profile=text)
        self.patiently(self.client.log_inputs, run_id, [DatasetInput(data, [InputTag("mlflow.data.context", context)])])

    def log_json(self, run_id: str, obj: Any, path: str) -> None:
        """Store `obj` as JSON at the artifact path `path`. Raises TypeError for what JSON cannot hold."""
        with self._staging(run_id) as root:
            artifacts.write_json(root, path, obj)

    def log_text(self, run_id: str, text: str, path: str) -> None:
        """Store a text at the artifact path `path`."""
        with self._staging(run_id) as root:
            artifacts.place(root, path).write_text(text)

    def log_file(self, run_id: str, local: Path, directory: str = "") -> None:
        """Store a file or a directory under the artifact path `directory`. Raises FileNotFoundError."""
        path = Path(local)
        if not path.exists():
            raise FileNotFoundError(f"{path} does not exist")
        if path.is_dir():
            self.patiently(self.client.log_artifacts, run_id, str(path), str(Path(directory) / path.name))
        else:
            self.patiently(self.client.log_artifact, run_id, str(path), directory or None)

    def log_tree(self, run_id: str, root: Path) -> None:
        """Store everything under `root` at the same relative paths."""
        if run_id in _artifact_uris:
            repository = get_artifact_repository(_artifact_uris[run_id], tracking_uri=self.uri)
            self.patiently(repository.log_artifacts, str(root))
        else:
            self.patiently(self.client.log_artifacts, run_id, str(root))

    def log_figure(self, run_id: str, figure: Figure, stem: str) -> None:
        """Store a matplotlib figure as `<stem>.png`, `<stem>.svg` and `<stem>.pdf`."""
        with self._staging(run_id) as root:
            artifacts.write_figure(root, stem, figure)

    def log_table(self, run_id: str, table: pd.DataFrame, path: str) -> None:
        """Store a table as `.csv` or `.parquet`, by the suffix of `path`. Raises ValueError for any other suffix."""
        with self._staging(run_id) as root:
            artifacts.write_table(root, path, table)

    def log_mlflow_table(self, run_id: str, table: pd.DataFrame, path: str) -> None:
        """Store a table as `mlflow.log_table` does (`.json`), so that MLflow's pages compare it across runs.

        Unlike `mlflow.log_table`, replaces an earlier table at this path instead of appending to it.
        """
        tag = "mlflow.loggedArtifacts"
        with self._staging(run_id) as root:
            table.to_json(artifacts.place(root, path), orient="split", index=False, date_format="iso")
        tables = json.loads(self.get_run(run_id).data.tags.get(tag, "[]"))
        entry = {"path": path, "type": "table"}
        if entry not in tables:
            self.set_tags(run_id, {tag: json.dumps([*tables, entry])})

    def artifact_paths(self, run_id: str, directory: str) -> list[str]:
        """Return the paths of the files and directories in an artifact directory; an empty list if it is missing."""
        return [entry.path for entry in self.patiently(self.client.list_artifacts, run_id, directory)]

    def delete_artifacts(self, run_id: str, path: str) -> None:
        """Delete an artifact, a file or a directory. Raises MlflowException if it cannot be deleted.

        Raises StoreError for artifacts on this machine's disks outside the folder of the SQLite store: their address
        comes from the store, where others may have written it.
        """
        uri, root = self.get_run(run_id).info.artifact_uri, self._folder()
        if (folder := local(uri)) and not (root and (folder / checked(path)).resolve().is_relative_to(root)):
            raise StoreError(f"the artifacts of run {run_id} do not lie in the folder of the store: {line(uri, 200)}")
        repository = get_artifact_repository(uri, tracking_uri=self.uri)
        self.patiently(repository.delete_artifacts, checked(path))

    def download(self, run_id: str, path: str, into: Path | None = None) -> Path:
        """Return a local path of an artifact, a file or a directory: a copy in the directory `into` if given.

        Raises RunNotFound, BadArtifact if the run has no such artifact, or StoreError.
        """
        uri = self.get_run(run_id).info.artifact_uri
        try:
            repository = get_artifact_repository(uri, tracking_uri=self.uri)
            return Path(self.patiently(repository.download_artifacts, path, str(into) if into else None))
        except (OSError, RuntimeError, MlflowException) as error:  # RuntimeError: a link to itself, before Python 3.13
            raise BadArtifact(f"run {run_id} has no artifact {path!r}") from error

    def read_json(self, run_id: str, path: str) -> Any:
        """Return what `log_json` stored. Raises as `read_bytes`, and BadArtifact for anything but JSON."""
        try:
            return json.loads(self.read_bytes(run_id, path))
        except (ValueError, RecursionError) as error:
            raise BadArtifact(f"artifact {path!r} of run {run_id} is not JSON") from error

    def read_bytes(self, run_id: str, path: str) -> bytes:
        """Return the content of an artifact. Raises as `download`, and BadArtifact for anything but a plain file."""
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

    def _folder(self) -> Path | None:
        return sqlite_path(self.uri).parent.resolve() if self.uri.startswith("sqlite:") else None

    @contextmanager
    def _staging(self, run_id: str) -> Iterator[Path]:
        with TemporaryDirectory() as root:
            yield Path(root)
            self.log_tree(run_id, Path(root))

    def require_active(self, run_id: str) -> None:
        """Raise RunGone if a run was deleted."""
        try:
            run = self.get_run(run_id)
        except RunNotFound as error:
            raise RunGone(str(error)) from None
        if run.info.lifecycle_stage == "deleted":
            raise RunGone(f"run {run_id} was deleted from the store")


def _require_id(run_id: str) -> None:
    """Raise an error that is repeated if the answer names no run."""
    if not run_id:
        raise MlflowException("the answer names no run", error_code=TEMPORARILY_UNAVAILABLE)
