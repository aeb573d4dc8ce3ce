"""Opened sweeps, run: their trials over Ray Tune, in the same workers, and each sweep closed as its last trial ends."""

import logging
import os
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
from mlflow.entities import Metric
from mlflow.exceptions import MlflowException

from featurelab.pipelines.engine.errors import RequestError, RunError, tell
from featurelab.pipelines.engine.sweep.cluster import alive, connect_ray
from featurelab.pipelines.engine.sweep.ownership import heartbeat, introduction
from featurelab.pipelines.engine.sweep.plan import Finished, Opened
from featurelab.pipelines.engine.sweep.ranking import Ranking
from featurelab.pipelines.engine.sweep.reasons import cause
from featurelab.pipelines.engine.sweep.records import JUDGING, end_sweep, how_trials_went
from featurelab.pipelines.engine.sweep.settle import Told, settle
from featurelab.pipelines.engine.sweep.sharing import at_once, requests
from featurelab.pipelines.engine.sweep.workarounds import fallen, survive_lack_of_memory
from featurelab.pipelines.engine.sweep.worker import Jobs
from featurelab.pipelines.engine.trial.place import SETTINGS
from featurelab.pipelines.engine.trial.record import TrialRecord
from featurelab.pipelines.engine.trial.signals import Enough, Held, as_exception, held_back, last_line, raised
from featurelab.tracking.lines import line
from featurelab.tracking.outbox.bound import Bound
from featurelab.tracking.outbox.journal import Busy
from featurelab.tracking.outbox.locks import exclusive_lock
from featurelab.tracking.outbox.sync import sync
from featurelab.tracking.store.connect import Store, StoreError

STATUSES = ("finished", "stopped", "diverged", "failed", "killed")  # in which a trial may end
NOTICED = 40.0  # seconds after which Ray has noticed that a machine is gone
ROUNDS = 3  # how often a trial may lose its machine before it is given up
INTERRUPTED = "the sweep was interrupted"


def conduct(
    opening: Callable[[], Sequence[Opened]],
    store: Store,
    outbox: Path,
    *,
    title: str = "",
    ended: Callable[[Finished], Any] = lambda finished: None,
) -> list[Finished]:
    """Run the trials of the sweeps that `opening` opens, one sweep after another but without a pause between them.

    They share the scheduler and the resources of the first. Each is closed, and given to `ended`, as soon as its last
    trial is over, beside the others that still run; interrupted, those that were not over are closed as killed. Trials
    whose machine is lost resume on another, in their own runs and from their last checkpoint; those that end their own
    process do not, since they would do so again.

    Raises `RequestError` where another process on this machine conducts one of them, `RunError` where Ray broke off,
    where trials do not record what they shall be ranked by, or where the store could not be told in the end what
    became of a sweep.
    """
    with _ended_by_signals(), held_back() as signals, ExitStack() as held:
        sweeps = opening()
        last_line.recorded = True
        for sweep in sweeps:
            try:
                held.enter_context(exclusive_lock(outbox, sweep.run_id))
            except Busy:
                raise RequestError(f"the sweep {sweep.name} is still being run by another process") from None
        for sweep in sweeps:
            if sweep.seconds is not None:
                store.reopen_run(sweep.run_id)
                store.set_tags(sweep.run_id, {"status": "running"} | introduction())
        held.enter_context(heartbeat(sweeps[0].run_id, store))
        results = Conducted(sweeps, store, outbox, title, ended, signals).run()
        sync(outbox, known=store.uri)  # what earlier crashes left, once: a store that is away costs seconds
        ran = [trial.run_id for finished in results for trial in finished.trials if trial.run_id]
        if unsent := [run_id for run_id in ran if (outbox / f"{run_id}.jsonl").exists()]:
            raise RunError(f"not everything that {len(unsent)} trials recorded has reached the store: featurelab sync")
        return results


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Inside, signals to end raise KeyboardInterrupt, the only one that Tune lets through; outside, what they are."""
    with raised(lambda number: KeyboardInterrupt()) as came:
        try:
            yield
        except KeyboardInterrupt:
            raise as_exception(came[0] if came else signal.SIGINT) from None


class Conducted:
    """Sweeps while they run, told apart by their place in `sweeps`."""

    def __init__(
        self,
        sweeps: Sequence[Opened],
        store: Store,
        outbox: Path,
        title: str,
        ended: Callable[[Finished], Any],
        signals: Held,
    ) -> None:
        self._signals = signals
        self.sweeps, self.store, self.outbox, self.ended = sweeps, store, outbox, ended
        self.title = title or sweeps[0].plan.experiment.partition("/")[2]
        self.told = [Told() for _ in sweeps]
        self.broken_off, self._advice = "", ""  # why the sweeps ended early, and what to do about it
        self._began = [0.0] * len(sweeps)
        self._closing: dict[int, Future[Finished]] = {}
        self._closed = [threading.Event() for _ in sweeps]  # set before a sweep is given to `ended`
        self._machines: set[str] = set()
        self._aside = ThreadPoolExecutor(1)
        self._ranking = Ranking(store)

    def run(self) -> list[Finished]:
        error: BaseException | None = None
        try:
            if any(sweep.indices for sweep in self.sweeps):
                with self._signals.let_through():
                    self._run_trials()
        except BaseException as end:
            error = end
            self._break_off(end)
        for part in range(len(self.sweeps)):
            self._close(part)
        try:
            for closed in self._closed:
                closed.wait()
            with self._signals.let_through():
                results = self._results()
        except KeyboardInterrupt:
            self._leave_unjudged()
            raise
        self._aside.shutdown()
        if self._signals.passed:
            raise KeyboardInterrupt from None
        if self.broken_off not in ("", INTERRUPTED):
            advice = self._advice or f"what was recorded is kept, {self._again()}"
            raise RunError(f"{self.broken_off}: {advice}") from error
        if error is not None:
            raise error
        return results

    def start(self, part: int) -> None:
        """The first trial of a sweep starts."""
        self._began[part] = self._began[part] or time.monotonic()

    def trial_ended(self, part: int) -> None:
        """A trial is over by itself; where it shows that nothing can be ranked, all are ended."""
        try:
            self._ranking.check(self.sweeps[part])
        except Enough as enough:
            self.broken_off, self._advice = str(enough), enough.advice
            raise KeyboardInterrupt from None  # an `Exception` Ray would take for one of the trial's

    def look_after_ray(self) -> None:
        """End what runs where Ray itself is not whole any more: it would take this process with it."""
        if reason := fallen():
            self.broken_off = reason
            raise KeyboardInterrupt

    def over(self, part: int) -> None:
        """The last trial of a sweep is over."""
        if not (len(self._machines) > 1 and self.told[part].errors):  # else it is seen first whether a machine is gone
            self._close(part)

    def _run_trials(self) -> None:
        self._machines = alive()
        self._tune(dict(enumerate(self.sweeps)))
        for _ in range(ROUNDS):
            parts = [part for part, told in enumerate(self.told) if part not in self._closing and told.errors]
            if not parts or not self._lost_a_machine():
                return
            self._machines = alive()
            again = {part: self._remainder(part) for part in parts}
            number = sum(len(sweep.indices) for sweep in again.values())
            tell(f"{number} trial{'s' * (number > 1)} died as a machine was lost: resuming elsewhere")
            self._tune(again)

    def _remainder(self, part: int) -> Opened:
        """What is to be run again of a sweep, all of whose trials are over."""
        sweep, died = self.sweeps[part], set(self.told[part].errors)
        trials = settle(sweep.plan, sweep.run_id, self.store, self.outbox, self.told[part])
        self.told[part].errors.clear()
        resumed = {trial.index: trial.run_id for trial in trials if trial.index in died and trial.run_id}
        return replace(sweep, indices=sorted(died), resumed=resumed)

    def _lost_a_machine(self) -> bool:
        """Whether a machine is gone; Ray needs a while to notice."""
        deadline = time.monotonic() + NOTICED
        while not self._machines - alive():
            if len(self._machines) < 2 or time.monotonic() > deadline:
                return False
            time.sleep(0.5)
        return True

    def _tune(self, sweeps: Mapping[int, Opened]) -> None:
        """Run the trials; `told` gets what Ray says of them."""
        import ray
        from ray import tune

        from featurelab.pipelines.engine.sweep.progress import SweepProgress
        from featurelab.pipelines.engine.sweep.schedulers import Asha, Fifo
        from featurelab.pipelines.engine.sweep.trainable import Trial

        first = next(iter(sweeps.values()))
        plan, resources = first.plan, first.plan.resources
        settings = {name: os.environ[name] for name in SETTINGS if name in os.environ}
        jobs = Jobs(sweeps, self.store.uri, str(self.outbox), settings, self.store.file)
        share = requests({part: sweep.plan for part, sweep in sweeps.items()})
        chosen = [(part, index) for part, sweep in sweeps.items() for index in sweep.indices]
        assignments = iter(chosen)
        logging.getLogger("ray.tune").setLevel(logging.CRITICAL)  # what becomes of each trial we say ourselves
        survive_lack_of_memory()
        watching = SweepProgress(self.title, chosen, self, Bound(self.outbox).trouble)
        with watching as progress, tempfile.TemporaryDirectory() as folder:
            tune.Tuner(
                tune.with_resources(tune.with_parameters(Trial, jobs=[ray.put(jobs)]), share),
                # not a grid: Tune would copy all of it for every trial
                param_space={"trial": tune.sample_from(lambda spec: next(assignments))},
                tune_config=tune.TuneConfig(
                    num_samples=len(chosen),
                    reuse_actors=resources.workers == 1,
                    scheduler=Asha(plan.metric, plan.mode) if plan.scheduler == "asha" else Fifo(),
                    max_concurrent_trials=at_once(resources),
                ),
                run_config=tune.RunConfig(
                    name=first.name,
                    storage_path=folder,
                    verbose=0,
                    callbacks=[progress],
                    checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
                ),
            ).fit()

    def _break_off(self, error: BaseException) -> None:
        """End the workers, so that what they have recorded can be sent."""
        import ray

        if not self.broken_off:
            ours = self._signals.passed or not isinstance(error, Exception)
            self.broken_off = INTERRUPTED if ours else fallen() or f"Ray broke off: {cause(error)}"
        address = ray.get_runtime_context().gcs_address if len(self._machines) > 1 else ""
        ray.shutdown()
        if address:
            with suppress(RequestError):
                connect_ray(address)  # for what they leave on other machines

    def _again(self) -> str:
        first = self.sweeps[0]
        again = "the same command" if first.plan.kind == "reproduce" else f"--resume {first.name}"
        return f"{again} runs what is missing"

    def _leave_unjudged(self) -> None:
        """Mark the reproductions that were interrupted between their last trial and their verdicts."""
        self._aside.shutdown(wait=False, cancel_futures=True)
        for part, sweep in enumerate(self.sweeps):
            judged = self._closing[part].done() and not self._closing[part].cancelled()
            if sweep.plan.kind == "reproduce" and not judged:
                with suppress(StoreError, MlflowException):
                    end_sweep(self.store, sweep.run_id, "killed")

    def _close(self, part: int) -> None:
        if part not in self._closing:
            self._closing[part] = self._aside.submit(self._finished, part)

    def _finished(self, part: int) -> Finished:
        try:
            finished = self._settled(part)
        finally:
            self._closed[part].set()
        if not self.broken_off:
            _tell_troubles(finished.trials)
            self.ended(finished)
        return finished

    def _settled(self, part: int) -> Finished:
        sweep, began = self.sweeps[part], self._began[part] or time.monotonic()
        options = {"broken_off": self.broken_off}
        trials = settle(sweep.plan, sweep.run_id, self.store, self.outbox, self.told[part], **options)
        seconds = time.monotonic() - began + (sweep.seconds or 0.0)
        _close_sweep(sweep, trials, self.store, seconds, killed=bool(self.broken_off))
        return Finished(sweep.run_id, sweep.name, trials, seconds, sweep.plan.metric, sweep.plan.mode)

    def _results(self) -> list[Finished]:
        try:
            return [self._closing[part].result() for part in range(len(self.sweeps))]
        except (StoreError, MlflowException) as error:
            kept = f"what was recorded is kept: featurelab sync sends it, {self._again()}"
            said = f"{line(str(error), 300)}; {kept}"
            if not self.broken_off:
                raise RunError(said) from None
            tell(f"featurelab: {said}")
            return []


def _close_sweep(sweep: Opened, trials: list[TrialRecord], store: Store, seconds: float, *, killed: bool) -> None:
    sweep_run_id = sweep.run_id
    counts = Counter({status: 0 for status in STATUSES if sweep.seconds is not None})  # in place of those before
    counts.update(trial.status for trial in trials)
    keep_metrics(store, sweep_run_id, {f"trials/{status}": n for status, n in counts.items()})
    rows = [{"run_id": t.run_id, "status": t.status, **t.config, **t.metrics} for t in trials]
    store.log_table(sweep_run_id, pd.DataFrame(rows), "results.csv")
    store.set_tags(sweep_run_id, {"seconds": f"{seconds:.1f}"})
    if killed:
        end_sweep(store, sweep_run_id, "killed")
    elif sweep.plan.kind == "reproduce":  # which is not over before verdicts and figure are stored
        store.set_tags(sweep_run_id, {"status": JUDGING})
    else:
        end_sweep(store, sweep_run_id, how_trials_went(trials))


def _tell_troubles(trials: Sequence[TrialRecord]) -> None:
    troubles = Counter((trial.status, trial.reason) for trial in trials if not trial.went_well)
    for (status, reason), number in troubles.items():
        tell(f"{number} trial{'s' * (number > 1)} {status}: {reason}")


def keep_metrics(store: Store, run_id: str, metrics: Mapping[str, float]) -> None:
    """Record numbers that have no steps."""
    now = time.time_ns() // 1_000_000
    store.log_metrics(run_id, [Metric(name, float(value), now, 0) for name, value in metrics.items()])
