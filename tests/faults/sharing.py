"""Schedules shared out to processes.

One rule: each schedule is a world of its own, so whoever runs it sees the same.
"""

import logging
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from multiprocessing import get_context

from tests.faults import backends, hunt
from tests.faults.schedules import Backend, Schedule


@dataclass(frozen=True, slots=True)
class Search:
    """Which schedules to run."""

    scenarios: tuple[str, ...]
    backend: Backend
    count: int
    seed: int
    exhaustive: bool = False
    """One fault at every call, however many that are."""
    processes: int = 1

    def schedules(self) -> Iterable[Schedule]:
        """All of them; the same ones each time."""
        if self.exhaustive:
            return (each for name in self.scenarios for each in hunt.one_each(name, backend=self.backend))
        return hunt.shuffled(self.count, self.seed, self.scenarios, self.backend)


@dataclass(frozen=True, slots=True)
class Share:
    """What one process has done."""

    count: int
    failures: list[hunt.Failure]
    worked: float
    """Seconds of CPU."""


def run(search: Search) -> list[Share]:
    """Run them all."""
    if search.processes == 1:
        return [_share(search, 0)]
    # Started anew: what this process has open is none of theirs.
    with ProcessPoolExecutor(search.processes, get_context("spawn")) as pool:
        return list(pool.map(partial(_share, search), range(search.processes)))


def _share(search: Search, number: int) -> Share:
    """Every so many-th schedule, from the one of this number on."""
    logging.disable(logging.CRITICAL)
    began = time.process_time()
    with backends.places(search.backend) as place:
        count, failures = hunt.search(islice(search.schedules(), number, None, search.processes), place)
    return Share(count, failures, time.process_time() - began)
