"""The jobs of a reading, newest first, by what a list of jobs filters.

One rule: made once for each reading, and only changed jobs are looked at again. A list that was asked for is found
again until the jobs change.
"""

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from heapq import merge

from coordinator.access.readers import Reader
from coordinator.dashboard.readings import Reading
from coordinator.wording import job_columns, job_state
from kube.api import Manifest

UNREADABLE = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError)
"""What reading an object raises that is not as its schema says."""
KEPT_LISTS = 256
_ANY_TIME = datetime.fromtimestamp(0, UTC)
_REASON = next(each for each in job_columns.job_columns(_ANY_TIME, {}) if each.title == "REASON")


@dataclass(frozen=True, slots=True)
class Filters:
    """Which jobs a list has. An empty filter lets every job pass."""

    namespace: str = ""
    queue: str = ""
    phase: str = ""
    reason: str = ""
    """A part of the reason."""
    name: str = ""
    """A part of the name."""


@dataclass(frozen=True, slots=True, eq=False)
class IndexedJob:
    """A job, by what lists filter; the same object as long as the job is the same."""

    item: Manifest
    uid: str
    namespace: str
    name: str
    queue: str
    phase: str
    reason: str
    order: tuple[float, str]
    """The place in the order of submission."""

    def passes(self, filters: Filters) -> bool:
        """Return whether the job passes all filters but that of the namespace."""
        return (
            (not filters.queue or self.queue == filters.queue)
            and (not filters.phase or self.phase.casefold() == filters.phase.casefold())
            and filters.name.casefold() in self.name.casefold()
            and filters.reason.casefold() in self.reason.casefold()
        )


class JobIndex:
    """The jobs of one reading."""

    def __init__(self, reading: Reading, before: "JobIndex | None") -> None:
        """Look at the jobs of a reading; jobs that are the same as `before` are taken from there."""
        self.jobs = reading.jobs
        swaps = _swaps(before, reading.jobs) if before else None
        if before is None or swaps is None:
            known: Mapping[str, IndexedJob] = before.by_uid if before else {}
            found = [each for item in reading.jobs if (each := _indexed(item, known))]
            found.sort(key=lambda each: each.order, reverse=True)
            namespaces: dict[str, list[IndexedJob]] = {}
            for each in found:
                namespaces.setdefault(each.namespace, []).append(each)
            self.by_uid: Mapping[str, IndexedJob] = {each.uid: each for each in found}
        else:
            found = [swaps.get(id(each), each) for each in before._all]
            changed = {each.namespace for each in swaps.values()}
            namespaces = before._by_namespace | {
                name: [swaps.get(id(each), each) for each in before._by_namespace[name]] for name in changed
            }
            self.by_uid = {**before.by_uid, **{each.uid: each for each in swaps.values()}}
        self._all: tuple[IndexedJob, ...] = tuple(found)
        self._by_namespace: dict[str, list[IndexedJob]] = namespaces
        self._lists: OrderedDict[tuple[Reader, Filters], Sequence[IndexedJob]] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, reader: Reader, filters: Filters) -> Sequence[IndexedJob]:
        """Return the jobs that a reader may read and that pass the filters, newest first."""
        key = reader, filters
        with self._lock:
            if key in self._lists:
                self._lists.move_to_end(key)
                return self._lists[key]
        found = self._readable(reader, filters.namespace)
        if filters != Filters(namespace=filters.namespace):
            found = tuple(each for each in found if each.passes(filters))
        with self._lock:
            self._lists[key] = found
            if len(self._lists) > KEPT_LISTS:
                self._lists.popitem(last=False)
        return found

    def namespaces(self, reader: Reader) -> list[str]:
        """Return the names of the namespaces with jobs that a reader may read."""
        return sorted(filter(reader.may_read, self._by_namespace))

    def _readable(self, reader: Reader, namespace: str) -> Sequence[IndexedJob]:
        if namespace:
            return tuple(self._by_namespace.get(namespace, ())) if reader.may_read(namespace) else ()
        if reader.everywhere:
            return self._all
        lists = [self._by_namespace[each] for each in self.namespaces(reader)]
        return tuple(merge(*lists, key=lambda each: each.order, reverse=True))


class JobIndexes:
    """The index of the newest reading."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._newest: JobIndex | None = None

    @property
    def newest(self) -> JobIndex | None:
        """The index of the reading that a page showed last; None before the first page."""
        return self._newest

    def of(self, reading: Reading) -> JobIndex:
        """Return the index of a reading."""
        with self._lock:
            if self._newest is None or self._newest.jobs is not reading.jobs:
                self._newest = JobIndex(reading, self._newest)
            return self._newest


INDEXES = JobIndexes()
"""The index of this process, which all pages share."""


def _swaps(before: JobIndex, jobs: Sequence[Manifest]) -> Mapping[int, IndexedJob] | None:
    """Return the changed jobs, by the identity of what was indexed for them; None if more than these has changed, as
    jobs that come and go.

    A reading has thousands of jobs of which few change: what stays is not even looked into.
    """
    if len(jobs) != len(before.jobs):
        return None
    found = {}
    for old, new in zip(before.jobs, jobs, strict=True):
        if old is not new:
            after = _indexed(new, before.by_uid)
            known = before.by_uid.get(after.uid) if after else None
            if after is None or known is None or known.item is not old:
                return None
            if (known.order, known.namespace) != (after.order, after.namespace):
                return None
            found[id(known)] = after
    return found


def _indexed(item: Manifest, known: Mapping[str, IndexedJob]) -> IndexedJob | None:
    """Return what lists filter; None for an object that has not even a name."""
    try:
        metadata = item["metadata"]
        before = known.get(metadata["uid"])
        if before is not None and before.item is item:
            return before
        uid, namespace, name = str(metadata["uid"]), str(metadata["namespace"]), str(metadata["name"])
    except UNREADABLE:
        return None
    try:
        order = job_state.submission_order(item)
        reason = str(_REASON.text(item))
        phase, queue = job_columns.phase(item), job_state.queue_of(item)
    except UNREADABLE:
        order, reason, phase, queue = (0.0, ""), "", "", namespace
    return IndexedJob(item, uid, namespace, name, queue, phase, "" if reason == "-" else reason, order)
