"""Decide by the seed alone which faults meet which sweeps."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.chaos.faults import CATALOGUE, Fault

TOGETHER = 5  # faults in one series of sweeps
ORDER = ("launch", "starting", "running", "judging", "closing")


@dataclass(frozen=True)
class Episode:
    """Sweeps in one folder and on one store, and the faults that they meet, in this order."""

    number: int
    store: str
    faults: tuple[str, ...]
    what: str  # sweep, reproduce, or endings
    seed: int
    trained: bool = False  # half of the trials train a network and save checkpoints
    asha: bool = False
    one_at_a_time: bool = False  # whether trials run one after another
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def own_disk(self) -> bool:
        return any(CATALOGUE[name].disk for name in self.faults)

    def __str__(self) -> str:
        kinds = [self.what, *(["trained"] if self.trained else []), *(["asha"] if self.asha else [])]
        return f"{self.number} on {self.store}, {' '.join(kinds)}: {', '.join(self.faults)}"


def every_fault(stores: Sequence[str], number: int, draw: random.Random) -> list[tuple[Fault, str]]:
    """Return each fault on each kind of store once and more sampled by weight; if `number` is too low, a sample."""
    each = [(fault, store) for fault in CATALOGUE.values() for store in stores if store in fault.stores]
    draw.shuffle(each)
    if number <= len(each):
        return each[:number]
    weights = [fault.weight if fault.moment != "trial" else 0 for fault, _ in each]
    return each + draw.choices(each, weights, k=number - len(each))


def planned(seed: int, number: int, stores: Sequence[str], only: Sequence[str] = ()) -> list[Episode]:
    """Return the episodes of a seed."""
    draw = random.Random(seed)
    if only:
        drawn = [(CATALOGUE[name], store) for name in only for store in stores if store in CATALOGUE[name].stores]
    else:
        drawn = every_fault(stores, number, draw)
    episodes: list[Episode] = []
    for store in stores:
        on_store = [fault for fault, kind in drawn if kind == store]
        trials = tuple(fault.name for fault in on_store if fault.moment == "trial")
        if trials:
            episodes.append(Episode(len(episodes), store, trials, "endings", draw.getrandbits(32)))
        judging = [fault for fault in on_store if fault.moment == "judging"]
        others = [fault for fault in on_store if fault.moment not in ("trial", "judging")]
        for group in _groups(others):
            needs_a_sweep = any(fault.group == "rivals" or fault.environment for fault in group)
            what = "sweep" if needs_a_sweep or not judging else "reproduce"
            if what == "reproduce":
                group = [*group, judging.pop()]
            episodes.append(_episode(len(episodes), store, group, what, draw))
        episodes += [_episode(len(episodes), store, [fault], "reproduce", draw) for fault in judging]
    return episodes


def _groups(faults: Sequence[Fault]) -> list[list[Fault]]:
    """Group faults into series: those that need their own disk apart from those that must not have it."""
    with_disk = [fault for fault in faults if fault.disk]
    rest = [fault for fault in faults if not fault.disk]
    indifferent = [place for place, fault in enumerate(rest) if fault.disk is None]
    while indifferent and len(with_disk) % TOGETHER:
        with_disk.append(rest.pop(indifferent.pop()))
    groups = [with_disk[i : i + TOGETHER] for i in range(0, len(with_disk), TOGETHER)]
    return groups + [rest[i : i + TOGETHER] for i in range(0, len(rest), TOGETHER)]


def _episode(number: int, store: str, faults: Sequence[Fault], what: str, draw: random.Random) -> Episode:
    ordered = sorted(faults, key=lambda fault: ORDER.index(fault.moment))
    environment: dict[str, str] = {}
    for fault in ordered:
        environment |= fault.environment
    sweep = what == "sweep"
    trained = sweep and draw.random() < 0.4
    return Episode(
        number,
        store,
        tuple(fault.name for fault in ordered),
        what,
        draw.getrandbits(32),
        trained=trained or bool(environment),
        asha=sweep and not trained and not environment and draw.random() < 0.3,
        one_at_a_time=draw.random() < 0.5,
        environment=environment,
    )
