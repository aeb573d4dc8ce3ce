"""An episode: sweeps are started, meet their faults, are resumed as the documentation tells, and audited in the end."""

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
from tests.chaos.endings import trials_end
from tests.chaos.faults import CATALOGUE, Fault, Impossible
from tests.chaos.home import Command, Home, Said, shown
from tests.chaos.outcome import Met, Outcome
from tests.chaos.plan import Episode
from tests.chaos.stores import SqliteStore

POINTS = 30
PAUSE = 0.04
LEVELS = (1.0, 2.0)
SEEDS = (0, 1, 2)
PATIENCE = 240.0  # seconds after which a command hangs that nobody disturbs
MOST_RESUMES = 7
PROGRESS = re.compile(
    r"curves: |endings: |best |charts: |parallel coordinates: |MLflow: |\d+ trials? |the trials of |\d+ figure|"
    r"resuming |featurelab: the outbox .* holds |\s*$"
)
ALWAYS = r"^stopped early by the scheduler$"
BUSY = re.compile(r"in use|still being recorded|is being run|still being run|being recorded")


class Sweeper:
    """Conducts one episode. `outcome` holds what was seen of it."""

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
        self.deadline = deadline  # after which no fault is caused any more
        self.episode, self.home, self.store = episode, home, store
        self.undisturbed, self.say, self.stop = undisturbed, say, stop
        self.random = random.Random(episode.seed)
        self.outcome = Outcome(episode.number, episode.store, episode.what)
        self.driver: Command
        self._sweep = 0
        self._seen: set[tuple[str, str]] = set()  # reasons by run
        self._since_launch: list[Fault] = []
        self._in_this_sweep: list[Fault] = []

    # What faults ask for

    def name(self) -> str:
        return f"e{self.episode.number}-{self._sweep}"

    def arguments(self) -> list[str]:
        settings = [f"points={POINTS}", f"pause={PAUSE}"]
        if self.episode.what == "reproduce":
            return ["reproduce", "chaos/curves"]  # with the same settings, which are the figure's own
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
    def own_lines(said: Said) -> list[str]:
        """What a command said beside its progress and its results."""
        return [text for text in said.err.splitlines() if not PROGRESS.match(text)]

    # The episode

    def run(self) -> Outcome:
        began = time.monotonic()
        self.home.environment |= self.store.ready_for(self.home.folder) | self.episode.environment
        pending = deque(CATALOGUE[name] for name in self.episode.faults)
        if self.episode.own_disk and (refused := self.home.mount_outbox()):
            for fault in [fault for fault in pending if fault.disk]:
                self.met(fault, skipped=refused)
                pending.remove(fault)
        if self.episode.what == "endings":
            trials_end(self, list(pending))
            pending.clear()
        while pending and not self.stop.is_set() and self._sweep < len(self.episode.faults):
            self._sweep += 1
            self._run_sweep(pending)
        for fault in pending:
            self.met(fault, skipped="the sweeps were over before")
        self.outcome.seconds = time.monotonic() - began
        return self.outcome

    def _run_sweep(self, pending: deque[Fault]) -> None:
        self.home.forget_notes()
        self._in_this_sweep = []
        earlier = audit.all_ids(self.store)
        resuming = False
        for number in range(MOST_RESUMES + 1):
            said = self._run_command(resuming, pending, earlier)
            if self.stop.is_set():
                return
            if said.code == 2 and resuming and not self._exists(earlier):
                resuming = False
                continue
            self._check_end(said, resuming)
            runs = audit.runs_beside(self.store, earlier)
            self._check_reasons(runs)
            if self._over(said, runs):
                break
            self._sync_and_check(earlier)
            resuming = self._exists(earlier)
            self.outcome.resumed += resuming
            if number == MOST_RESUMES:
                self.notice(f"did not come to an end in {number} resumes: {said.code} {said.last_line[:200]}")
        self.home.ponder.unlink(missing_ok=True)
        self._audit(earlier)

    def _run_command(self, resuming: bool, pending: deque[Fault], earlier: set[str]) -> Said:
        """Start or resume the sweep, and let it meet its faults until it ends."""
        again = resuming and self.episode.what == "sweep"
        options = ["--resume", self.name()] if again else []
        self.driver = self.home.start(*(["sweep", "chaos/curves", *options] if again else self.arguments()))
        self.outcome.sweeps += not resuming
        self._since_launch = []
        complete = self._noted_all()
        last, wait = self._recorded(), self._next_wait()
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
                (moment == "running" and self._recorded() > last + wait)
                or (moment == "closing" and not complete and self._noted_all())
                or (moment == "judging" and self._judges(earlier))
            ):
                self._cause(pending.popleft())
                last, wait = self._recorded(), self._next_wait()
                deadline = time.monotonic() + PATIENCE
            time.sleep(0.2)
        if self.driver.runs and not self.stop.is_set():
            self.notice(f"hung for {PATIENCE:g} s after {self._names()}")
        said = self.driver.ended(0.1 if self.driver.runs else 10)
        for met in self.outcome.met[::-1][:1]:
            if self._since_launch and met.name == self._since_launch[-1].name:
                met.ended_with = said.code
        return said

    def _cause(self, fault: Fault) -> None:
        self.say(f"  {self.name()} {fault.name}")
        self._since_launch.append(fault)
        self._in_this_sweep.append(fault)
        try:
            fault.act(self)
        except Impossible as why:
            self.met(fault, skipped=str(why))
        except Exception as error:  # of the harness itself: said, and not taken for a finding
            self.met(fault, skipped=f"the harness: {type(error).__name__}: {error}")
            self.say(f"  {self.name()} {fault.name} could not be caused: {error!r}")
        else:
            self.met(fault)
        if any(code < 0 or code > 128 for code in fault.codes):  # no other fault shall meet a driver that is ending
            with suppress(subprocess.TimeoutExpired):
                self.driver.process.wait(90)
        if fault.moment == "judging":
            self.home.ponder.unlink(missing_ok=True)

    def _no_time_for(self, pending: deque[Fault]) -> None:
        while pending:
            self.met(pending.popleft(), skipped="no time was left")

    def met(self, fault: Fault, skipped: str = "") -> None:
        self.outcome.met.append(Met(fault.name, fault.group, self.episode.store, self.name(), skipped))

    # After a command has ended

    def _check_end(self, said: Said, resuming: bool) -> None:
        own = self.own_lines(said)
        self.outcome.lines += own
        after = self._names() or ("resuming" if resuming else "nothing")
        if "Traceback" in said.err + said.out:
            self.notice(f"a traceback after {after}: {shown(said)}")
        codes = {0, *(code for fault in self._since_launch for code in fault.codes)}
        if resuming and any(fault.destroys or 1 in fault.codes for fault in self._in_this_sweep):
            codes.add(1)
        if "unknown experiment" in said.err:
            raise RuntimeError(shown(said))
        if said.code not in codes:
            self.notice(f"status {said.code}, not one of {sorted(codes)}, after {after}: {shown(said)}")
        last = self._since_launch[-1] if self._since_launch else None
        if last and last.said and said.code in last.codes:
            if last.said == "promised" and len(own) != 1:
                self.notice(f"{len(own)} lines instead of one after {after}: {own[:4]}")
            if last.said != "promised" and not re.search(last.said, said.last_line):
                self.notice(f"after {after} the last line does not say {last.said!r}: {said.last_line[:200]}")

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

    def _over(self, said: Said, runs: list[Run]) -> bool:
        """Whether nothing is left to resume."""
        if said.code == 0:
            return True
        trials = {run.trial for run in runs if run.trial and self._is_ours(run)}
        ended = all(
            run.tags.get("status") in ("finished", "stopped") for run in runs if self._is_ours(run) and run.trial
        )
        closed = all(run.status != "RUNNING" for run in runs)
        return said.code in (1, 2) and closed and ended and trials >= set(self._trials())

    def _sync_and_check(self, earlier: set[str]) -> None:
        """What was recorded is in the store before anything is resumed."""
        for _ in range(6):
            said = self.home.run("sync")
            if "Traceback" in said.err:
                self.notice(f"sync printed a traceback: {shown(said)}")
            if said.code == 0 or not BUSY.search(said.err):
                break
            time.sleep(2)
        destroyed = any(
            fault.destroys or fault.spoils or fault.name == "outbox_removed" for fault in self._in_this_sweep
        )
        if said.code != 0 and not destroyed:
            self.notice(f"sync ended with {said.code} after {self._names()}: {shown(said)}")
        if not destroyed:
            self.outcome.checked_before_resuming += 1
            missing = audit.lacking(audit.runs_beside(self.store, earlier), self.home.noted())
            if missing:
                self.outcome.lost += sum(map(len, missing.values()))
                self.notice(f"recorded before {self._names()}, and not stored after sync: {missing}")

    def _audit(self, earlier: set[str]) -> None:
        runs = audit.runs_beside(self.store, earlier)
        ours = [run for run in runs if self._is_ours(run) and run.trial]
        found = audit.audit(ours, self._trials(), POINTS, self.undisturbed)
        found.running += sum(run.status == "RUNNING" for run in runs if run not in ours)
        faults = ", ".join(fault.name for fault in self._in_this_sweep) or "nothing"
        for name in ("expected", "lost", "lost_and_said", "doubled", "different", "running"):
            setattr(self.outcome, name, getattr(self.outcome, name) + getattr(found, name))
        for note in found.notes:
            self.notice(f"in the end, after {faults}: {note}")
        if found.running and not found.notes:
            self.notice(f"in the end, after {faults}: {found.running} runs of verdicts are RUNNING")
        self._empty_outbox(runs, faults)
        left = processes.end_all(self.home.folder, patience=15)
        if left:
            self.say(f"  {self.name()}: {left} processes were left and have been ended")

    def _empty_outbox(self, runs: list[Run], faults: str) -> None:
        """Nothing is left but the journals of damaged runs, which `sync` names until it is told to discard them."""
        if not self.home.kept():
            return
        said = self.home.run("sync")
        kept, damaged = self.home.kept(), {run.run_id for run in runs if run.damaged}
        if kept - damaged:
            self.notice(f"in the end, after {faults}: {len(kept - damaged)} journals are left: {shown(said)}")
        if kept & damaged and said.code != 1:
            self.notice(f"in the end, after {faults}: sync ended with {said.code} though a journal is damaged")
        for run_id in kept:
            self.home.run("sync", "--discard", run_id)
        if self.home.kept():
            self.notice(f"in the end, after {faults}: sync --discard leaves journals of {self.home.kept()}")

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
        """Whether the store knows the sweep, so that it can be resumed."""
        if self.episode.what != "sweep":
            return True
        return any(
            run.tags.get("mlflow.runName", "").endswith(self.name()) or self._is_ours(run)
            for run in audit.runs_beside(self.store, earlier)
        )

    def _judges(self, earlier: set[str]) -> bool:
        return any(run.tags.get("status") == "judging" for run in audit.runs_beside(self.store, earlier))

    def _recorded(self) -> int:
        """How much trials have recorded, again too: bytes of their notes."""
        total = 0
        for path in self.home.truth.iterdir():
            total += path.stat().st_size
        return total

    def _next_wait(self) -> int:
        return self.random.randint(60, 180)

    def _noted_all(self) -> bool:
        noted = self.home.noted()
        # a training counts its epochs from 0
        return len(noted) >= len(self._trials()) and all(len(steps) >= POINTS for steps in noted.values())

    def _names(self) -> str:
        return ", ".join(fault.name for fault in self._since_launch)
