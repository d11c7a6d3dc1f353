"""The search for failures: generate schedules, run them, and minimise the schedules that fail.

One rule: every failure is reported as one line that replays it.
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
"""The faults that the exhaustive search tries at every call."""
MANY: tuple[Kind, ...] = (*KINDS, "yield", "yield", "yield", "yield", "user", "lag")
"""The faults from which random schedules are drawn, some of them more often."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A schedule and the invariant that it broke."""

    schedule: Schedule
    what: str

    def __str__(self) -> str:
        return f"{self.schedule}\n    {self.what}\n    python -m tests.faults --replay '{self.schedule}'"


@dataclass(frozen=True, slots=True)
class Quiet:
    """The result of a scenario without faults."""

    calls: int
    left: tuple[str, ...]


@cache
def quiet(scenario: str) -> Quiet:
    """Return how many calls a scenario makes without faults while it is busy, and which objects it leaves."""
    world = World(Schedule(scenario), MemoryPlace)
    world.run()
    return Quiet(world.busy_calls, tuple(world.observer.left()))


def run(schedule: Schedule, place: PlaceMaker = MemoryPlace, *, tracing: bool = False) -> World:
    """Run one schedule. Raises Broken if an invariant does not hold."""
    world = World(schedule, place, expected=list(quiet(schedule.scenario).left), tracing=tracing)
    world.run()
    return world


def broken(schedule: Schedule, place: PlaceMaker = MemoryPlace) -> str:
    """Return the message about the invariant that a schedule breaks; empty if it breaks no invariant."""
    try:
        run(schedule, place)
    except Broken as error:
        return str(error)
    return ""


def one_each(scenario: str, kinds: Iterable[Kind] = EACH, backend: Backend = "memory") -> Iterator[Schedule]:
    """Yield schedules with each fault at every call of a scenario."""
    kinds = [kind for kind in kinds if kind != "user" or SCENARIOS[scenario].steps]
    for at in range(1, quiet(scenario).calls + 1):
        for kind in kinds:
            yield Schedule(scenario, backend, faults=(Fault(at, kind),))


def shuffled(
    count: int, seed: int, scenarios: Iterable[str] = SCENARIOS, backend: Backend = "memory"
) -> Iterator[Schedule]:
    """Yield schedules of up to four faults at random calls. Three of four schedules also shuffle the order of
    processes.
    """
    draw = random.Random(f"schedules {seed}")
    names = sorted(scenarios)
    for _ in range(count):
        name = draw.choice(names)
        most = quiet(name).calls + 30
        faults = {Fault(draw.randint(1, most), draw.choice(MANY)) for _ in range(draw.randint(0, 4))}
        order = draw.randint(1, 2**31) if draw.random() < 0.75 else 0
        yield Schedule(name, backend, order, tuple(sorted(faults)))


def biting(scenarios: Iterable[str], kinds: Iterable[Kind], *, in_order: bool) -> Iterator[Schedule]:
    """Yield schedules for a mutation. The schedules have faults of these kinds at every call in order, or at random
    calls in shuffled orders.
    """
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
    """Return the number of schedules up to the first failure, and the failure; None if `most` schedules pass."""
    count = 0
    for count, schedule in enumerate(islice(schedules, most), 1):
        what = broken(schedule)
        if what:
            return count, Failure(schedule, what)
    return count, None


def smaller(schedule: Schedule, breaks: Callable[[Schedule], Any]) -> Schedule:
    """Return the smallest schedule found that still fails. The result has fewer faults and, if possible, the steady
    order.
    """
    for candidate in _simpler(schedule):
        if breaks(candidate):
            return smaller(candidate, breaks)
    return schedule


def _simpler(schedule: Schedule) -> Iterator[Schedule]:
    if schedule.seed:
        yield replace(schedule, seed=0)
    yield from (schedule.without(fault) for fault in schedule.faults)


def search(schedules: Iterable[Schedule], place: PlaceMaker = MemoryPlace, most: int = 10) -> tuple[int, list[Failure]]:
    """Run schedules. Return the number of schedules that ran, and the first `most` failures, minimised."""
    count, found = 0, []
    for schedule in schedules:
        count += 1
        if what := broken(schedule, place):
            small = smaller(schedule, lambda each: broken(each, place))
            found.append(Failure(small, broken(small, place) or f"{what} (at the first of two runs only)"))
            if len(found) >= most:
                break
    return count, found
