"""What the cluster shows, read once a second for everybody who looks.

One rule: nothing is asked while nobody looks, and a part that does not answer is named while the rest is shown.
"""

import contextlib
import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from types import MappingProxyType
from typing import Any, TypeVar

from coordinator.dashboard import moments
from coordinator.dashboard.moments import Moments
from coordinator.errors import CoordinatorError
from coordinator.follow.job_feed import Inbox, JobFeed
from coordinator.query.questions import Document, Queries
from history.errors import HistoryError
from kube import errors
from kube.api import Manifest
from queues.errors import QueueError

EVERY_SECONDS = 1.0
LOOKED_SECONDS = 5.0
"""How long after the last look the cluster is read on. A browser that goes to the next page finds fresh figures."""
FIRST_SECONDS = 10.0
"""The longest wait of a page for a first reading."""
PICKS = 10
"""The forecast picks that a page shows."""
FAILURES = (errors.ClusterError, QueueError, CoordinatorError, HistoryError)
_NOTHING_YET = MappingProxyType({"API server": f"it has not answered for {FIRST_SECONDS:.0f} s"})
MOST_KEPT = 256
"""The most values that are kept for a reading, beside what was read."""
_NOT_UNDERSTOOD = MappingProxyType({"dashboard": "what it read is not understood; its log has the error"})
T = TypeVar("T")
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Reading:
    """What the cluster showed at one time."""

    number: int
    """Counts readings; two readings of the same number are the same."""
    at: float
    """The time, in seconds since 1970."""
    jobs: Sequence[Manifest] = ()
    """All jobs that this process sees, trimmed, in no order."""
    jobs_version: int = 0
    """Differs if the jobs differ."""
    queues: Sequence[Document] = ()
    has_idle_growth: bool = False
    """Whether a queue uses room by idle growth."""
    upcoming: Document = field(default_factory=dict)
    """The answer to `next` for the picks that fit now."""
    in_order: Document = field(default_factory=dict)
    """The answer to `next` as if the pool had room for all jobs."""
    status: Document = field(default_factory=dict)
    problems: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """What does not answer, by its name, and why."""
    figures_at: float = 0.0
    """When a coordinator answered last; the figures of queues and picks are those of then."""
    began: Moments = field(default_factory=lambda: MappingProxyType({}))
    """When the waits began of the oldest job of each queue (`queue_wait`) and of picks (`pick_wait`)."""
    _of_reading: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    _of_jobs: dict[Hashable, Any] = field(default_factory=dict, repr=False, compare=False)

    def once(self, name: Hashable, make: Callable[[], T]) -> T:
        """Return a value that is made once for this reading, however many visitors look."""
        return _kept(self._of_reading, name, make)

    def once_for_jobs(self, name: Hashable, make: Callable[[], T]) -> T:
        """Return a value that is made from the jobs, and again only when these differ."""
        return _kept(self._of_jobs, name, make)

    def jobs_by(self, key: Callable[[Manifest], str]) -> Mapping[str, Sequence[Manifest]]:
        """Return the jobs by a text that each has."""
        found = defaultdict[str, list[Manifest]](list)
        for job in self.jobs:
            found[key(job)].append(job)
        return found


def queue_wait(name: str) -> str:
    """Return the name of the wait of the oldest job of a queue."""
    return f"queue {name}"


def pick_wait(pick: Document) -> str:
    """Return the name of the wait of a forecast pick."""
    return f"pick {pick.get('uid')} {pick.get('workers')}"


def _kept(values: dict[Hashable, Any], name: Hashable, make: Callable[[], T]) -> T:
    found: T | None = values.get(name)
    if found is None:
        if len(values) >= MOST_KEPT:
            values.clear()
        found = values[name] = make()
    return found


class Readings:
    """Reads the cluster on a thread as long as someone looks, and keeps the newest reading."""

    def __init__(
        self,
        feed: Callable[[], JobFeed],
        queries: Callable[[], Queries],
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`feed` returns the feed of the jobs; after a failure, a new one."""
        self._feed, self._queries, self._clock, self._monotonic = feed, queries, clock, monotonic
        self._followed: JobFeed | None = None
        self._inbox = Inbox()
        self._behind = ""
        self.on_reading: Callable[[], object] = lambda: None
        """What is called after each reading, on the thread that reads."""
        self._changed = threading.Condition()
        self._newest = Reading(number=0, at=0.0)
        self._looked = -LOOKED_SECONDS
        self._stopped = False
        self._jobs_version = 0
        self._thread = threading.Thread(target=self._run, name="dashboard-readings", daemon=True)

    def __enter__(self) -> "Readings":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def newest(self) -> Reading:
        """Return the newest reading, and let the cluster be read for some seconds from now. Waits for a first reading
        if nobody has looked for a while."""
        with self._changed:
            idle = self._monotonic() - self._looked > LOOKED_SECONDS
            number = self._newest.number
            self._looked = self._monotonic()
            if idle:
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._stopped or self._newest.number != number, FIRST_SECONDS)
            return self._newest if self._newest.number else replace(self._newest, problems=_NOTHING_YET)

    @property
    def present(self) -> Reading:
        """The newest reading; asking for it lets nothing be read."""
        return self._newest

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._stopped or self._is_wanted())
                if self._stopped:
                    return
            try:
                found = self._read()
            except Exception:  # an answer of another version, for example; the next one may be right
                log.exception("the cluster could not be read")
                found = replace(self._newest, number=self._newest.number + 1, problems=_NOT_UNDERSTOOD)
            with self._changed:
                self._newest = found
                self._changed.notify_all()
            self.on_reading()
            with self._changed:
                self._changed.wait_for(lambda: self._stopped, EVERY_SECONDS)

    def _is_wanted(self) -> bool:
        return self._monotonic() - self._looked <= LOOKED_SECONDS

    def _read(self) -> Reading:
        problems = dict[str, str]()

        def attempt(part: str, read: Callable[[], T], otherwise: T) -> T:
            if part in problems:
                return otherwise
            try:
                return read()
            except FAILURES as error:
                problems[part] = str(error)
                return otherwise

        jobs = attempt("API server", self._read_jobs, self._newest.jobs)
        if behind := self._still_behind():
            problems.setdefault("API server", behind)
        queries = attempt("coordinator", self._queries, None)
        before, at = self._newest, self._clock()
        nothing = Document()
        status = attempt("coordinator", lambda: queries.status() if queries else nothing, nothing)
        queues = attempt("coordinator", lambda: queries.queues() if queries else (), before.queues)
        upcoming = attempt("coordinator", lambda: queries.next(PICKS) if queries else nothing, before.upcoming)
        ordered = attempt(
            "coordinator", lambda: queries.next(PICKS, roomy=True) if queries else nothing, before.in_order
        )
        is_known = "coordinator" not in problems
        waits = [
            *((queue_wait(item["metadata"]["name"]), item["status"].get("oldestWaitSeconds")) for item in queues),
            *((pick_wait(pick), pick.get("waitSeconds")) for pick in chain(*map(_items, (upcoming, ordered)))),
        ]
        return Reading(
            number=before.number + 1,
            at=at,
            figures_at=at if is_known else before.figures_at,
            began=MappingProxyType(moments.began(waits, at, before.began)) if is_known else before.began,
            _of_jobs=before._of_jobs if before.jobs_version == self._jobs_version else {},
            jobs=jobs,
            jobs_version=self._jobs_version,
            queues=tuple(queues),
            has_idle_growth=any(item["status"].get("idleUsage") for item in queues),
            upcoming=upcoming,
            in_order=ordered,
            status=status,
            problems=MappingProxyType(problems),
        )

    def _still_behind(self) -> str:
        """Return why the jobs are behind since the reading before; empty if they are not, or only for a moment."""
        before, self._behind = self._behind, self._followed.behind if self._followed else ""
        return self._behind if before else ""

    def _read_jobs(self) -> Sequence[Manifest]:
        feed = self._feed()
        changed = feed is not self._followed
        if changed:
            self._followed, self._inbox = feed, Inbox()
        jobs: Iterable[Manifest] = feed.all(self._inbox)
        with contextlib.suppress(StopIteration):
            while self._inbox.take(0) is not None:
                changed = True
        if not changed:
            return self._newest.jobs
        self._jobs_version += 1
        return tuple(jobs)


def _items(answer: Document) -> Sequence[Document]:
    found: Sequence[Document] = answer.get("items", ())
    return found
