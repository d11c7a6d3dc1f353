"""Making schedules, running them, and making those that fail small.

One rule: whatever fails is told as one line that replays it.
"""

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from typing import Any

from tests.faults.places import MemoryPlace
from tests.faults.scenarios.catalog import SCENARIOS
from tests.faults.schedules import KINDS, Backend, Fault, Kind, Schedule
from tests.faults.verdict import Broken
from tests.faults.world import PlaceMaker, World

EACH: tuple[Kind, ...] = ("kill<", "kill>", "lost", "fail", "again", "stop", "hang", "flush", "user", "lag")
"""What the exhaustive search tries at every call."""
MANY: tuple[Kind, ...] = (*KINDS, "yield", "yield", "yield", "yield", "user", "lag")
"""What random schedules draw from."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A schedule and what it broke."""

    schedule: Schedule
    what: str

    def __str__(self) -> str:
        return f"{self.schedule}\n    {self.what}\n    python -m tests.faults --replay '{self.schedule}'"


@dataclass(frozen=True, slots=True)
class Quiet:
    """A scenario when nothing goes wrong."""

    calls: int
    left: tuple[str, ...]


@cache
def quiet(scenario: str) -> Quiet:
    """How many calls a scenario takes, and what it leaves, when nothing goes wrong."""
    world = World(Schedule(scenario), MemoryPlace)
    world.run()
    return Quiet(world.calls, tuple(world.observer.left()))


def run(schedule: Schedule, place: PlaceMaker = MemoryPlace, *, tracing: bool = False) -> World:
    """One schedule. Broken if it breaks something."""
    world = World(schedule, place, expected=list(quiet(schedule.scenario).left), tracing=tracing)
    world.run()
    return world


def broken(schedule: Schedule, place: PlaceMaker = MemoryPlace) -> str:
    """What a schedule breaks, in words; empty if nothing."""
    try:
        run(schedule, place)
    except Broken as error:
        return str(error)
    return ""


def one_each(scenario: str, kinds: Iterable[Kind] = EACH, backend: Backend = "memory") -> Iterator[Schedule]:
    """Each fault at every call of a scenario."""
    kinds = [kind for kind in kinds if kind != "user" or SCENARIOS[scenario].steps]
    for at in range(1, quiet(scenario).calls + 1):
        for kind in kinds:
            yield Schedule(scenario, backend, faults=(Fault(at, kind),))


def shuffled(
    count: int, seed: int, scenarios: Iterable[str] = SCENARIOS, backend: Backend = "memory"
) -> Iterator[Schedule]:
    """Several faults each, at random calls, in an order that is shuffled as well (one in four is not)."""
    draw = random.Random(f"schedules {seed}")
    names = sorted(scenarios)
    for _ in range(count):
        name = draw.choice(names)
        most = quiet(name).calls + 30
        faults = {Fault(draw.randint(1, most), draw.choice(MANY)) for _ in range(draw.randint(0, 4))}
        order = draw.randint(1, 2**31) if draw.random() < 0.75 else 0
        yield Schedule(name, backend, order, tuple(sorted(faults)))


def biting(scenarios: Iterable[str], kinds: Iterable[Kind], *, in_order: bool) -> Iterator[Schedule]:
    """Schedules for a mutation: its faults at every call, or many at random calls in shuffled orders."""
    kinds, names = list(kinds), list(scenarios)
    yield from map(Schedule, names)
    if in_order:
        for name in names:
            yield from one_each(name, kinds)
        return
    draw = random.Random("biting")
    while True:
        name = draw.choice(names)
        most = quiet(name).calls + 10
        faults = {Fault(draw.randint(1, most), draw.choice(kinds)) for _ in range(draw.randint(1, 4))}
        yield Schedule(name, "memory", draw.randint(1, 2**31), tuple(sorted(faults)))


def first_broken(schedules: Iterable[Schedule], most: int) -> tuple[int, Failure | None]:
    """How many it takes until one is broken, and that one; None if `most` are not."""
    count = 0
    for count, schedule in enumerate(islice(schedules, most), 1):
        what = broken(schedule)
        if what:
            return count, Failure(schedule, what)
    return count, None


def smaller(schedule: Schedule, breaks: Callable[[Schedule], Any]) -> Schedule:
    """The same failure with fewer faults, in the steady order if that fails too."""
    for candidate in _simpler(schedule):
        if breaks(candidate):
            return smaller(candidate, breaks)
    return schedule


def _simpler(schedule: Schedule) -> Iterator[Schedule]:
    if schedule.seed:
        yield replace(schedule, seed=0)
    yield from (schedule.without(fault) for fault in schedule.faults)


def search(schedules: Iterable[Schedule], place: PlaceMaker = MemoryPlace, most: int = 10) -> tuple[int, list[Failure]]:
    """Run them; how many, and the first few failures, made small."""
    count, found = 0, []
    for schedule in schedules:
        count += 1
        if broken(schedule, place):
            small = smaller(schedule, lambda each: broken(each, place))
            found.append(Failure(small, broken(small, place)))
            if len(found) >= most:
                break
    return count, found
