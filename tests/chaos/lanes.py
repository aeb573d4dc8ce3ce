"""Run episodes side by side, each lane with its own stores, so that a fault hits only its own sweep."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.chaos import processes
from tests.chaos.audit import Points, Trial
from tests.chaos.endings import EndingsSweeper
from tests.chaos.home import Home
from tests.chaos.outcome import Outcome
from tests.chaos.plan import Episode
from tests.chaos.stores import PostgresStore, ServerStore, SqliteStore
from tests.chaos.sweeper import Sweeper

LAST = 120.0  # seconds before the deadline after which no episode begins


class Lanes:
    """Runs episodes in several threads until all are done or the deadline comes."""

    def __init__(
        self,
        root: Path,
        episodes: Sequence[Episode],
        undisturbed: Mapping[Trial, Points],
        say: Callable[[str], None],
        deadline: float,
        *,
        keep: bool = False,
    ) -> None:
        self.keep = keep  # whether to keep the folders of the sweeps
        self.root, self.undisturbed, self.say, self.deadline = root, undisturbed, say, deadline
        self.waiting = list(episodes)
        self.outcomes: list[Outcome] = []
        self.stop = threading.Event()
        self._lock = threading.Lock()

    def run(self, number: int) -> list[Outcome]:
        threads = [threading.Thread(target=self._lane, args=(lane,), daemon=True) for lane in range(number)]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                while thread.is_alive():
                    thread.join(0.5)
        except BaseException:
            self.stop.set()
            for thread in threads:
                thread.join(60)
            raise
        return self.outcomes

    def _lane(self, lane: int) -> None:
        stores: dict[str, SqliteStore | ServerStore] = {}
        kind = ""
        try:
            while (episode := self._next(kind, lane)) and not self.stop.is_set():
                kind = episode.store
                if kind not in stores:
                    stores[kind] = self._store(kind, lane)
                    stores[kind].start()
                self._run(episode, stores[kind], lane)
        except Exception as error:
            self.say(f"lane {lane} broke: {error!r}")
        finally:
            for store in stores.values():
                store.stop()

    def _next(self, kind: str, lane: int) -> Episode | None:
        """Return the next episode: on the same kind of store if possible, so that few servers run at once."""
        with self._lock:
            if not self.waiting or time.monotonic() > self.deadline - LAST:
                return None
            ordered = self.waiting if lane % 2 == 0 else self.waiting[::-1]
            chosen = next((episode for episode in ordered if episode.store == kind), ordered[0])
            self.waiting.remove(chosen)
            return chosen

    def _store(self, kind: str, lane: int) -> SqliteStore | ServerStore:
        home = self.root / f"{kind}-{lane}"
        if kind == "sqlite":
            return SqliteStore(home, self.root / "template.db")
        return PostgresStore(home) if kind == "postgres" else ServerStore(home)

    def _run(self, episode: Episode, store: SqliteStore | ServerStore, lane: int) -> None:
        self.say(f"lane {lane}: {episode}")
        home = Home(self.root / f"e{episode.number}", self.root / "site")
        kind = EndingsSweeper if episode.what == "endings" else Sweeper
        sweeper = kind(episode, home, store, self.undisturbed, self.say, self.stop, self.deadline - LAST)  # type: ignore[arg-type]
        try:
            sweeper.run()
        except Exception as error:
            sweeper.notice(f"the harness broke: {error!r}")
            if sweeper.driver.runs:
                sweeper.driver.process.kill()
        finally:
            processes.end_all(home.folder)
            home.close(keep=self.keep)
        if not self.stop.is_set():
            with self._lock:
                self.outcomes.append(sweeper.outcome)
            self.say(f"lane {lane}: {episode.number} took {sweeper.outcome}")
