"""The knowledge of a supervisor about its child processes, and the checks that follow from this knowledge.

One rule: a process that runs and reports nothing counts as hanging; a process that has ended is started again and does
not count as hanging.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from coordinator.life import health_checks
from coordinator.life.channel import Report
from coordinator.life.health_checks import HEALTHZ, READYZ, Check, Probes
from coordinator.life.process_checks import loop_checks
from kube.process.turns import LATE_SECONDS, Turns

URL = "metricsUrl"
START_SECONDS = 300.0
"""How long a process may take until it tells of itself for the first time: on a starved node it starts slowly."""


def report(probes: Probes, url: str = "") -> Report:
    """Return the message of a process to its supervisor. `url` is the URL of the process's own port for probes."""
    return {HEALTHZ: health_checks.to_json(probes.healthz()), READYZ: health_checks.to_json(probes.readyz()), URL: url}


@dataclass(frozen=True, slots=True)
class _Child:
    pid: int
    heard_at: float
    """When the process told of itself last, or began."""
    told: Report | None = None
    ended: str = ""
    """How the process has ended; empty while it runs."""


class Children:
    """The child processes that tell of themselves; safe to share between threads."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, listener: Callable[[Report], object] = lambda _: None
    ) -> None:
        """`listener` is called with each report of a process, once."""
        self._clock = clock
        self._listener = listener
        self._lock = threading.Lock()
        self._children: dict[str, _Child] = {}

    def begin(self, name: str, pid: int) -> None:
        """Record that a process has begun."""
        self._put(name, _Child(pid, self._clock()))

    def hear(self, name: str, told: Report) -> None:
        """Record the message of a process."""
        self._listener(told)
        with self._lock:
            if (child := self._children.get(name)) is not None:
                self._children[name] = replace(child, told=told, heard_at=self._clock())

    def end(self, name: str, how: str) -> None:
        """Record that a process has ended and will be started again."""
        self._put(name, _Child(0, self._clock(), ended=how))

    def forget(self, name: str) -> None:
        """Forget a process that will not be started again."""
        with self._lock:
            self._children.pop(name, None)

    def healthz(self) -> list[Check]:
        """Return the checks of all processes that run."""
        return [check for name, child in self._all() for check in self._healthz(name, child)]

    def hanging(self) -> dict[str, str]:
        """Return the processes that hang, with their problems."""
        problems = {name: health_checks.problems(self._healthz(name, child)) for name, child in self._all()}
        return {name: problem for name, problem in problems.items() if problem}

    def readyz(self) -> list[Check]:
        """Return the checks of all processes."""
        found = []
        for name, child in self._all():
            found += [Check(name, _unready(child)), *_told(name, child, READYZ)]
        return found

    def reports(self) -> list[Report]:
        """Return the newest report of each process that runs."""
        return [child.told for _, child in self._all() if child.told is not None]

    def urls(self) -> dict[str, str]:
        """Return the URLs of the ports for probes of the processes that have one."""
        urls = {name: (child.told or {}).get(URL) for name, child in self._all()}
        return {name: url for name, url in urls.items() if isinstance(url, str) and url}

    def have_told(self) -> bool:
        """Return whether every process has told of itself."""
        return all(child.told is not None for _, child in self._all())

    def _healthz(self, name: str, child: _Child) -> list[Check]:
        silent = self._clock() - child.heard_at
        is_late = not child.ended and silent > (START_SECONDS if child.told is None else LATE_SECONDS)
        problem = f"process {child.pid} has told nothing for {silent:.0f} s" if is_late else ""
        return [Check(name, problem), *_told(name, child, HEALTHZ)]

    def _put(self, name: str, child: _Child) -> None:
        with self._lock:
            self._children[name] = child

    def _all(self) -> list[tuple[str, _Child]]:
        with self._lock:
            return list(self._children.items())


@dataclass(frozen=True, slots=True)
class SupervisorLife:
    """The checks of a supervisor and all its child processes."""

    children: Children
    turns: Turns
    """The loops of the supervisor itself."""

    def healthz(self) -> list[Check]:
        """Return the checks of the supervisor's loop and of the processes that run."""
        return [*loop_checks(self.turns), *self.children.healthz()]

    def readyz(self) -> list[Check]:
        """Return the checks of all processes. Before the first has begun, the supervisor is not ready."""
        return self.children.readyz() or [Check("processes", "none has begun yet")]


def _unready(child: _Child) -> str:
    if child.ended:
        return f"it {child.ended}, and starts again"
    return "" if child.told is not None else "it has told nothing yet"


def _told(name: str, child: _Child, probe: str) -> list[Check]:
    return health_checks.under(name, health_checks.from_json((child.told or {}).get(probe)))
