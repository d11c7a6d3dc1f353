"""The checks of the loops and the caches of this process.

One rule: a loop that waits for Redis or the API server passes. A restart would not help.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from coordinator.life.health_checks import Check
from kube.informer import Informer
from kube.process.turns import LATE_SECONDS, Turns


def loop_checks(turns: Turns) -> list[Check]:
    """Return a check of each loop."""
    return [_check(turn.name, turn.age) for turn in turns.loops]


def cache_check(informer: Informer[Any]) -> Check:
    """Return a check that passes once a cache is read, even if it may be behind later."""
    name, failing = f"cache/{informer.resource.plural}", informer.failing
    return Check(name, note=failing) if informer.synced else Check(name, failing or "not read yet")


def _check(name: str, age: float) -> Check:
    return Check(name, f"it has not turned for {age:.0f} s" if age > LATE_SECONDS else "")


@dataclass(frozen=True, slots=True)
class ProcessLife:
    """The checks of one process: each of its loops turns, and what the process lacks for its work. A server that is
    away fails no check: a restart would not help."""

    turns: Turns
    readyz: Callable[[], Sequence[Check]]
    """Returns the checks that pass once the process does its work."""

    def healthz(self) -> Sequence[Check]:
        """Return a check of each loop."""
        return loop_checks(self.turns)
