"""Questions to other processes over their read-only HTTP APIs: to a coordinator, and to a recorder.

One rule: who asks brings the access (`Fetch`), with the rights of the reader. An answer is used for output only.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import quote, urlencode

from coordinator.errors import CoordinatorError
from coordinator.query.questions import Document, parse_document
from crds.keys import JobKey


class Fetch(Protocol):
    """Access to the API of a coordinator."""

    def __call__(self, path: str, namespace: str = "") -> Any:
        """Return the JSON at a path; `namespace` is the one of the jobs that the question is about, if it is about
        one."""


class Withheld(CoordinatorError):
    """A coordinator does not tell this account what it asks."""


class NoCoordinator(CoordinatorError):
    """The coordinator that the user or the cluster names does not answer."""


class NoCoordinatorKnown(NoCoordinator):
    """The cluster names no coordinator that answers."""


class NoRecorder(CoordinatorError):
    """The cluster has no recorder, or none that answers the question."""


@dataclass(frozen=True, slots=True)
class RemoteQueries:
    """Queries about the queues over the read-only HTTP API of a coordinator."""

    fetch: Fetch

    def _get(self, path: str, namespace: str = "") -> Document:
        return parse_document(self.fetch(f"/v1/{path}", namespace))

    def _of_job(self, key: JobKey, what: str) -> Document:
        namespace, name, uid = (quote(part, safe="") for part in (key.namespace, key.name, key.uid))
        return self._get(f"jobs/{namespace}/{name}/{what}?uid={uid}", key.namespace)

    def queues(self) -> list[Document]:
        """Return all queues with their figures."""
        return [*map(parse_document, self._get("queues").get("items", []))]

    def queue(self, name: str) -> Document:
        """Return one queue with its figures."""
        return self._get(f"queues/{quote(name, safe='')}")

    def next(self, count: int, *, roomy: bool = False) -> Document:
        """Return the next picks; with `roomy`, as if the pool had room for all jobs."""
        return self._get(f"next?n={count}&roomy={int(roomy)}")

    def places(self, queues: Collection[str]) -> list[Document]:
        """Return the places of the first waiting jobs of some queues."""
        names = quote(",".join(sorted(queues)), safe=",")
        return [*map(parse_document, self._get(f"places?queues={names}")["items"])]

    def job(self, key: JobKey) -> Document:
        """Return the position of a job, or why it is not in the order."""
        return self._of_job(key, "why")

    def reports(self, key: JobKey) -> Document:
        """Return the reports of the pods of a job."""
        return self._of_job(key, "report")

    def status(self) -> Document:
        """Return the numbers of the coordinator, the workers and the queues."""
        return self._get("status")


@dataclass(frozen=True, slots=True)
class History:
    """The history that a recorder tells, or the database of this machine. Each answer may raise HistoryError,
    ClusterError or CoordinatorError."""

    fetch: Fetch

    def jobs(self, query: Mapping[str, str]) -> Document:
        """Return one page of jobs."""
        return parse_document(self.fetch(f"/v1/history?{urlencode(query)}", query.get("namespace", "")))

    def job(self, namespace: str, name: str, uid: str) -> Document:
        """Return one job with its holds. Raises UnknownObject."""
        path = f"/v1/history/{quote(namespace, safe='')}/{quote(name, safe='')}?{urlencode({'uid': uid})}"
        return parse_document(self.fetch(path, namespace))

    def usage(self, query: Mapping[str, str]) -> Document:
        """Return who has used how much."""
        return parse_document(self.fetch(f"/v1/usage?{urlencode(query)}"))

    def timeline(self, query: Mapping[str, str]) -> Document:
        """Return what a queue did in a span (`coordinator.query.queue_timeline`)."""
        return parse_document(self.fetch(f"/v1/timeline?{urlencode(query)}"))
