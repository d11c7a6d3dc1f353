"""The jobs of a reading, newest first, by what a list of jobs filters.

One rule: made once for each reading, and only changed jobs are looked at again. A list that was asked for is found
again until the jobs change.
"""

import threading
from collections import OrderedDict, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from heapq import merge
from types import MappingProxyType

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


@dataclass(frozen=True, slots=True)
class IndexedJob:
    """A job, by what lists filter."""

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
        known: Mapping[str, IndexedJob] = before.by_uid if before else {}
        self.jobs = reading.jobs
        found: list[IndexedJob] = [each for item in reading.jobs if (each := _indexed(item, known))]
        found.sort(key=lambda each: each.order, reverse=True)
        self.by_uid: Mapping[str, IndexedJob] = {each.uid: each for each in found}
        namespaces = defaultdict[str, list[IndexedJob]](list)
        for each in found:
            namespaces[each.namespace].append(each)
        self._all = tuple(found)
        self._by_namespace = MappingProxyType(namespaces)
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
