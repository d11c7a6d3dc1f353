"""The answers of a coordinator to a visitor who has logged in.

One rule: the coordinator answers the dashboard, which it tells everything, and an answer passes what the visitor may
be told before it is used.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from coordinator.query.bounds import Bounds
from coordinator.query.questions import UNKNOWN_PREFIX, Document, Queries, UnknownObject
from crds.keys import JobKey


@dataclass(frozen=True, slots=True)
class BoundQueries:
    """Queries, as `coordinator.query.questions.Queries` describes them, within the bounds of a visitor."""

    all: Queries
    bounds: Callable[[Collection[str]], Bounds]
    """A function that returns what the visitor is told, also about the namespaces that are given."""

    def queues(self) -> list[Document]:
        """Return the queues that the visitor may get."""
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
        """Return the places of the visitor's jobs."""
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
