"""An episode: start sweeps, cause their faults, resume the sweeps as documented, and audit the result."""

import itertools
import random
import re
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress

from tests.chaos import audit, processes
from tests.chaos.audit import Points, Run, Trial
from tests.chaos.faults import CATALOGUE, Fault, Impossible
from tests.chaos.home import Command, Home, Result, shown
from tests.chaos.outcome import Encounter, Outcome
from tests.chaos.plan import Episode
from tests.chaos.stores import SqliteStore

POINTS = 30
PAUSE = 0.04
LEVELS = (1.0, 2.0)
SEEDS = (0, 1, 2)
PATIENCE = 240.0  # seconds after which an undisturbed command counts as hung
MOST_RESUMES = 7
PROGRESS = re.compile(
    r"curves: |endings: |best |charts: |parallel coordinates: |MLflow: |\d+ trials? |the trials of |\d+ figure|"
    r"resuming |featurelab: the outbox .* holds |\s*$"
)
ALWAYS = r"^stopped early by the scheduler$"
BUSY = re.compile(r"in use|still being recorded|is being run|still being run|being recorded")


class Sweeper:
    """Runs one episode. `outcome` holds the result."""

    def __init__(
        self,
        episode: Episode,
        home: Home,
        store: SqliteStore,
        undisturbed: Mapping[Trial, Points],
        say: Callable[[str], None],
        stop: threading.Event,
        deadline: float,
    ) -> None:
        self.deadline = deadline  # no fault is caused later
        self.episode, self.home, self.store = episode, home, store
        self.undisturbed, self.say, self.stop = undisturbed, say, stop
        self.random = random.Random(episode.seed)
        self.outcome = Outcome(episode.number, episode.store, episode.what)
        self.driver: Command
        self._sweep = 0
        self._seen: set[tuple[str, str]] = set()  # reasons by run
        self._since_launch: list[Fault] = []
        self._in_this_sweep: list[Fault] = []

    # The face that faults use

    def name(self) -> str:
        return f"e{self.episode.number}-{self._sweep}"

    def arguments(self) -> list[str]:
        settings = [f"points={POINTS}", f"pause={PAUSE}"]
        if self.episode.what == "reproduce":
            return ["reproduce", "chaos/curves"]  # with the settings of the figure, which are the same
        kinds = "closed,trained" if self.episode.trained else "closed"
        over = [f"kind={kinds}", f"level={','.join(map(str, LEVELS))}", f"seed={','.join(map(str, self._seeds()))}"]
        request = ["sweep", "chaos/curves", *settings, "--name", self.name()]
        request += itertools.chain.from_iterable(("--over", domain) for domain in over)
        request += ["--scheduler", "asha"] if self.episode.asha else []
        request += ["--cpus-per-trial", "2"] if self.episode.one_at_a_time else []
        return request

    def notice(self, what: str) -> None:
        self.outcome.untrue.append(f"{self.name()}: {what}")
        self.say(f"  ! {self.name()}: {what}")

    @staticmethod
    def messages(result: Result) -> list[str]:
        """Return the lines that a command wrote besides progress and results."""
        return [text for text in result.err.splitlines() if not PROGRESS.match(text)]

    # The episode

    def run(self) -> Outcome:
        began = time.monotonic()
        self.home.environment |= self.store.ready_for(self.home.folder) | self.episode.environment
        pending = deque(CATALOGUE[name] for name in self.episode.faults)
        if self.episode.own_disk and (refused := self.home.mount_outbox()):
            for fault in [fault for fault in pending if fault.disk]:
                self.met(fault, skipped=refused)
                pending.remove(fault)
        self.run_sweeps(pending)
        for fault in pending:
            self.met(fault, skipped="the sweeps had ended before")
        self.outcome.seconds = time.monotonic() - began
        return self.outcome

    def run_sweeps(self, pending: deque[Fault]) -> None:
        """Run sweeps until all faults were caused, as many as there are faults at most."""
        while pending and not self.stop.is_set() and self._sweep < len(self.episode.faults):
            self._sweep += 1
            self._run_sweep(pending)

    def _run_sweep(self, pending: deque[Fault]) -> None:
        self.home.forget_notes()
        self._in_this_sweep = []
        earlier = audit.all_ids(self.store)
        resuming = False
        for number in range(MOST_RESUMES + 1):
            result = self._run_command(resuming, pending, earlier)
            if self.stop.is_set():
                return
            if result.code == 2 and resuming and not self._exists(earlier):
                resuming = False
                continue
            self._check_end(result, resuming)
            runs = audit.new_runs(self.store, earlier)
            self._check_reasons(runs)
            if self._is_complete(result, runs):
                break
            self._sync_and_check(earlier)
            resuming = self._exists(earlier)
            self.outcome.resumed += resuming
            if number == MOST_RESUMES:
                self.notice(f"did not come to an end in {number} resumes: {result.code} {result.last_line[:200]}")
        self.home.ponder.unlink(missing_ok=True)
        self._audit(earlier)

    def _run_command(self, resuming: bool, pending: deque[Fault], earlier: set[str]) -> Result:
        """Start or resume the sweep, and cause faults until it ends."""
        resume = ["sweep", "chaos/curves", "--resume", self.name()]
        by_name = resuming and self.episode.what == "sweep"
        self.driver = self.home.start(*(resume if by_name else self.arguments()))
        self.outcome.sweeps += not resuming
        self._since_launch = []
        all_noted_before = self._noted_all()
        recorded, wait = self._recorded(), self._next_wait()
        while pending and pending[0].moment in ("launch", "starting"):
            self._cause(pending.popleft())
            if not self.driver.runs:
                break
        deadline = time.monotonic() + PATIENCE
        while self.driver.runs and time.monotonic() < deadline and not self.stop.is_set():
            if time.monotonic() > self.deadline:
                self._no_time_for(pending)
            moment = pending[0].moment if pending else ""
            if moment == "judging":
                self.home.ponder.touch()
            else:
                self.home.ponder.unlink(missing_ok=True)
            if (
                (moment == "running" and self._recorded() > recorded + wait)
                or (moment == "closing" and not all_noted_before and self._noted_all())
                or (moment == "judging" and self._judges(earlier))
            ):
                self._cause(pending.popleft())
                recorded, wait = self._recorded(), self._next_wait()
                deadline = time.monotonic() + PATIENCE
            time.sleep(0.2)
        if self.driver.runs and not self.stop.is_set():
            self.notice(f"hung for {PATIENCE:g} s after {self._names()}")
        result = self.driver.ended(0.1 if self.driver.runs else 10)
        for met in self.outcome.met[::-1][:1]:
            if self._since_launch and met.name == self._since_launch[-1].name:
                met.ended_with = result.code
        return result

    def _cause(self, fault: Fault) -> None:
        self.say(f"  {self.name()} {fault.name}")
        self._since_launch.append(fault)
        self._in_this_sweep.append(fault)
        try:
            fault.act(self)
        except Impossible as why:
            self.met(fault, skipped=str(why))
        except Exception as error:  # of the harness itself: reported, but not as a finding
            self.met(fault, skipped=f"the harness: {type(error).__name__}: {error}")
            self.say(f"  {self.name()} {fault.name} could not be caused: {error!r}")
        else:
            self.met(fault)
        if any(code < 0 or code > 128 for code in fault.codes):  # cause no other fault while the driver is ending
            with suppress(subprocess.TimeoutExpired):
                self.driver.process.wait(90)
        if fault.moment == "judging":
            self.home.ponder.unlink(missing_ok=True)

    def _no_time_for(self, pending: deque[Fault]) -> None:
        while pending:
            self.met(pending.popleft(), skipped="no time was left")

    def met(self, fault: Fault, skipped: str = "") -> None:
        self.outcome.met.append(Encounter(fault.name, fault.group, self.episode.store, self.name(), skipped))

    # After a command has ended

    def _check_end(self, result: Result, resuming: bool) -> None:
        messages = self.messages(result)
        self.outcome.lines += messages
        after = self._names() or ("resuming" if resuming else "nothing")
        if "Traceback" in result.err + result.out:
            self.notice(f"a traceback after {after}: {shown(result)}")
        codes = {0, *(code for fault in self._since_launch for code in fault.codes)}
        if resuming and any(fault.destroys or 1 in fault.codes for fault in self._in_this_sweep):
            codes.add(1)
        if "unknown experiment" in result.err:
            raise RuntimeError(shown(result))
        if result.code not in codes:
            self.notice(f"status {result.code}, not one of {sorted(codes)}, after {after}: {shown(result)}")
        last = self._since_launch[-1] if self._since_launch else None
        if last and last.message and result.code in last.codes:
            if last.message == "promised" and len(messages) != 1:
                self.notice(f"{len(messages)} lines instead of one after {after}: {messages[:4]}")
            if last.message != "promised" and not re.search(last.message, result.last_line):
                self.notice(f"after {after} the last line does not say {last.message!r}: {result.last_line[:200]}")

    def _check_reasons(self, runs: list[Run]) -> None:
        for run in runs:
            reason = run.tags.get("reason", "")
            if not reason or (run.run_id, reason) in self._seen or re.search(ALWAYS, reason):
                continue
            self._seen.add((run.run_id, reason))
            self.outcome.reasons.append(reason)
            if "Traceback" in reason or not any(fault.allows(reason) for fault in self._in_this_sweep):
                faults = ", ".join(fault.name for fault in self._in_this_sweep)
                self.notice(f"after {faults} the reason is {reason[:300]!r}")

    def _is_complete(self, result: Result, runs: list[Run]) -> bool:
        """Return whether nothing is left to resume."""
        if result.code == 0:
            return True
        trials = {run.trial for run in runs if run.trial and self._is_ours(run)}
        ended = all(
            run.tags.get("status") in ("finished", "stopped") for run in runs if self._is_ours(run) and run.trial
        )
        closed = all(run.status != "RUNNING" for run in runs)
        return result.code in (1, 2) and closed and ended and trials >= set(self._trials())

    def _sync_and_check(self, earlier: set[str]) -> None:
        """Check that the store has everything that was recorded, before anything is resumed."""
        for _ in range(6):
            result = self.home.run("sync")
            if "Traceback" in result.err:
                self.notice(f"sync printed a traceback: {shown(result)}")
            if result.code == 0 or not BUSY.search(result.err):
                break
            time.sleep(2)
        is_destroyed = any(
            fault.destroys or fault.spoils or fault.name == "outbox_removed" for fault in self._in_this_sweep
        )
        if result.code != 0 and not is_destroyed:
            self.notice(f"sync ended with {result.code} after {self._names()}: {shown(result)}")
        if not is_destroyed:
            self.outcome.checked_before_resuming += 1
            missing = audit.missing_steps(audit.new_runs(self.store, earlier), self.home.noted())
            if missing:
                self.outcome.lost += sum(map(len, missing.values()))
                self.notice(f"recorded before {self._names()}, and not stored after sync: {missing}")

    def _audit(self, earlier: set[str]) -> None:
        runs = audit.new_runs(self.store, earlier)
        ours = [run for run in runs if self._is_ours(run) and run.trial]
        counts = audit.audit(ours, self._trials(), POINTS, self.undisturbed)
        counts.running += sum(run.status == "RUNNING" for run in runs if run not in ours)
        faults = ", ".join(fault.name for fault in self._in_this_sweep) or "nothing"
        for name in ("expected", "lost", "lost_and_tagged", "doubled", "different", "running"):
            setattr(self.outcome, name, getattr(self.outcome, name) + getattr(counts, name))
        for note in counts.notes:
            self.notice(f"in the end, after {faults}: {note}")
        if counts.running and not counts.notes:
            self.notice(f"in the end, after {faults}: {counts.running} runs of verdicts are RUNNING")
        self._empty_outbox(runs, faults)
        if n_killed := processes.end_all(self.home.folder, patience=15):
            self.say(f"  {self.name()}: {n_killed} processes were left and were killed")

    def _empty_outbox(self, runs: list[Run], faults: str) -> None:
        """Check that only journals of damaged runs are left, which `sync` lists until they are discarded."""
        if not self.home.runs_in_outbox():
            return
        result = self.home.run("sync")
        journals, damaged = self.home.runs_in_outbox(), {run.run_id for run in runs if run.damaged}
        if journals - damaged:
            self.notice(f"in the end, after {faults}: {len(journals - damaged)} journals are left: {shown(result)}")
        if journals & damaged and result.code != 1:
            self.notice(f"in the end, after {faults}: sync ended with {result.code} though a journal is damaged")
        for run_id in journals:
            self.home.run("sync", "--discard", run_id)
        if self.home.runs_in_outbox():
            self.notice(f"in the end, after {faults}: sync --discard leaves journals of {self.home.runs_in_outbox()}")

    # What the sweep is

    def _seeds(self) -> tuple[int, ...]:
        return SEEDS if self.episode.trained or self.episode.what == "reproduce" else tuple(range(2 * len(SEEDS)))

    def _trials(self) -> list[Trial]:
        kinds = ("closed", "trained") if self.episode.trained else ("closed",)
        return list(itertools.product(kinds, LEVELS, self._seeds()))

    def _is_ours(self, run: Run) -> bool:
        if self.episode.what == "reproduce":
            return run.tags.get("kind") == "reproduce"
        return run.tags.get("sweep") == self.name()

    def _exists(self, earlier: set[str]) -> bool:
        """Return whether the store has the sweep, so that it can be resumed."""
        if self.episode.what != "sweep":
            return True
        return any(
            run.tags.get("mlflow.runName", "").endswith(self.name()) or self._is_ours(run)
            for run in audit.new_runs(self.store, earlier)
        )

    def _judges(self, earlier: set[str]) -> bool:
        return any(run.tags.get("status") == "judging" for run in audit.new_runs(self.store, earlier))

    def _recorded(self) -> int:
        """Return how much trials have recorded, repetitions included, in bytes of their notes."""
        total = 0
        for path in self.home.truth.iterdir():
            total += path.stat().st_size
        return total

    def _next_wait(self) -> int:
        return self.random.randint(60, 180)

    def _noted_all(self) -> bool:
        noted = self.home.noted()
        # trials that train count epochs from 0
        return len(noted) >= len(self._trials()) and all(len(steps) >= POINTS for steps in noted.values())

    def _names(self) -> str:
        return ", ".join(fault.name for fault in self._since_launch)
