"""What of an answer a reader is told.

One rule: pure. Who may list the TorchJobs of all namespaces gets answers as they are. An answer to anyone else names
no job of a namespace that the reader may not read, and no queue that such jobs alone use: of others, it has numbers
that the reader's own jobs depend on.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from coordinator.access.readers import Reader
from coordinator.query.questions import ANOTHER, UNKNOWN_PREFIX, Document, Queries, UnknownObject
from crds.keys import JobKey


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a reader is told."""

    reader: Reader
    uses: Callable[[str], bool]
    """A function that returns whether jobs that the reader may read could use a queue."""
    is_listed: Callable[[str], bool]
    """A function that returns whether a list of queues that the reader gets has a queue."""
    _hash: int | None = field(default=None, init=False, repr=False, compare=False)

    def __hash__(self) -> int:
        # The streams of a dashboard look pages up by these bounds, each second each of them.
        if self._hash is None:
            object.__setattr__(self, "_hash", hash((self.reader, self.uses, self.is_listed)))
        return self._hash or 0

    def shows(self, queue: str) -> bool:
        """Return whether the reader is told about a queue that it names."""
        return self.reader.everywhere or self.uses(queue) or self.is_listed(queue)

    def queues(self, items: Iterable[Document]) -> list[Document]:
        """Return the queues of a list with their figures."""
        if self.reader.everywhere:
            return [*items]
        return [self.queue(item) for item in items if self.is_listed(item["metadata"]["name"])]

    def queue(self, item: Document) -> Document:
        """Return a queue that the reader is told about."""
        status = item["status"]
        first = status["first"] if status["first"] is None or self._reads(status["first"]) else ANOTHER
        return item | {"status": self._held(status) | {"first": first}}

    def places(self, items: Iterable[Document]) -> list[Document]:
        """Return the places of the jobs that the reader may read."""
        return [item for item in items if self._reads(item["job"])]

    def picks(self, document: Document) -> Document:
        """Return the next picks. Of the jobs of others, the reader learns only where they stand."""
        items = [each if self._reads(each["job"]) else _another_pick(each) for each in document["items"]]
        return document | {"items": items}

    def job(self, document: Document) -> Document:
        """Return the state of a job that the reader may read."""
        parts = {name: self._held(document[name]) for name in ("growth", "rest") if name in document}
        return self._held(document) | parts

    def plan(self, document: Document) -> Document:
        """Return the plan of resizes, for the jobs that the reader may read."""
        listed = {name: self.places(document[name]) for name in ("claims", "unchanged")}
        return document | listed | {"resizes": [*map(self._resize, self.places(document["resizes"]))]}

    def _resize(self, item: Document) -> Document:
        if item["for"] is None or self._reads(item["for"]):
            return item
        return item | {"for": ANOTHER, "forQueue": self._queue_name(item["forQueue"])}

    def _held(self, document: Document) -> Document:
        if not document.get("holders"):
            return document
        return document | {"holders": [*map(self._holder, document["holders"])]}

    def _holder(self, item: Document) -> Document:
        if self._reads(item["job"]):
            return item
        return item | {"job": ANOTHER, "uid": "", "queue": self._queue_name(item["queue"])}

    def _queue_name(self, queue: str) -> str:
        """Return the name of the queue of a job of others; empty if the reader's own jobs do not use this queue."""
        return queue if self.reader.everywhere or self.is_listed(queue) else ""

    def _reads(self, job: str) -> bool:
        """Return whether the reader may read a job, by its namespace and name."""
        return self.reader.may_read(job.partition("/")[0])


def _another_pick(item: Document) -> Document:
    return {"pick": item["pick"], "job": ANOTHER}


@dataclass(frozen=True, slots=True)
class BoundQueries:
    """Queries, as `coordinator.query.questions.Queries` describes them, within the bounds of a reader."""

    all: Queries
    bounds: Callable[[Collection[str]], Bounds]
    """A function that returns what the reader is told, also about the namespaces that are given."""

    def queues(self) -> list[Document]:
        """Return the queues that the reader may get."""
        return self.bounds(()).queues(self.all.queues())

    def queue(self, name: str) -> Document:
        """Return one queue."""
        bounds = self.bounds(())
        if not bounds.shows(name):
            raise UnknownObject(f"{UNKNOWN_PREFIX}queue {name} in the queues")
        return bounds.queue(self.all.queue(name))

    def next(self, count: int, *, roomy: bool = False) -> Document:
        """Return the next picks."""
        return self.bounds(()).picks(self.all.next(count, roomy=roomy))

    def places(self, queues: Collection[str]) -> list[Document]:
        """Return the places of the reader's jobs."""
        return self.bounds(()).places(self.all.places(queues))

    def job(self, key: JobKey) -> Document:
        """Return the position of a job and why it waits."""
        return self._bounds_of(key).job(self.all.job(key))

    def reports(self, key: JobKey) -> Document:
        """Return the reports of the pods of a job."""
        self._bounds_of(key)
        return self.all.reports(key)

    def status(self) -> Document:
        """Return the numbers of dispatch and of the queues. They name no job."""
        return self.all.status()

    def _bounds_of(self, key: JobKey) -> Bounds:
        bounds = self.bounds((key.namespace,))
        if not bounds.reader.may_read(key.namespace):
            raise UnknownObject(f"{UNKNOWN_PREFIX}job {key.namespace}/{key.name}")
        return bounds
