"""Runs of many schedules, divided among processes.

One rule: each schedule runs in its own world, so every process gets the same result.
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
    """The selection of schedules to run."""

    scenarios: tuple[str, ...]
    backend: Backend
    count: int
    seed: int
    exhaustive: bool = False
    """Whether to run one fault at every call, whatever the count."""
    processes: int = 1

    def schedules(self) -> Iterable[Schedule]:
        """Return the schedules, which are the same at each call."""
        if self.exhaustive:
            return (each for name in self.scenarios for each in hunt.one_each(name, backend=self.backend))
        return hunt.shuffled(self.count, self.seed, self.scenarios, self.backend)


@dataclass(frozen=True, slots=True)
class Share:
    """The result of one process."""

    count: int
    failures: list[hunt.Failure]
    worked: float
    """The CPU time in seconds."""


def run(search: Search) -> list[Share]:
    """Run all schedules, and return the result of each process."""
    if search.processes == 1:
        return [_share(search, 0)]
    # Processes are spawned, so that they do not inherit open connections of this process.
    with ProcessPoolExecutor(search.processes, get_context("spawn")) as pool:
        return list(pool.map(partial(_share, search), range(search.processes)))


def _share(search: Search, number: int) -> Share:
    """Run the part of process `number`: every n-th schedule, beginning with the schedule of this number."""
    logging.disable(logging.CRITICAL)
    began = time.process_time()
    with backends.places(search.backend) as place:
        count, failures = hunt.search(islice(search.schedules(), number, None, search.processes), place)
    return Share(count, failures, time.process_time() - began)
