"""The possible questions about the queues, and the common part of every answer.

One rule: little is imported here, because every command that asks a coordinator imports it. `coordinator.query.queries`
has the answers.
"""

from collections.abc import Collection
from typing import Any, Protocol

from coordinator.errors import CoordinatorError
from crds.keys import JobKey

Document = dict[str, Any]
"""An answer, or a part of one, as JSON values."""
IDENTITY = "Torchq-Identity"
"""The HTTP header that names the coordinator process that made the answer."""
ANOTHER = "a job of another team"
"""What stands for the name of a job that the reader may not read."""
MOST_FORECAST_PICKS = 500
UNKNOWN_PREFIX = "there is no "
"""The beginning of every message about an object that does not exist."""


class UnknownObject(CoordinatorError):
    """The queues have no queue or job of that name."""


class Queries(Protocol):
    """Queries about the queues, answered as JSON documents. A query may raise QueueError, ClusterError or
    CoordinatorError."""

    def queues(self) -> list[Document]:
        """Return every queue as a TenantQueue whose status has the current figures."""

    def queue(self, name: str) -> Document:
        """Return one queue. Raises UnknownObject if no object has that name."""

    def next(self, count: int, *, roomy: bool = False) -> Document:
        """Return the next picks if nothing changes; if `roomy`, in a pool with room for all jobs."""

    def places(self, queues: Collection[str]) -> list[Document]:
        """Return the places of the first waiting jobs of some queues, in the order of each queue."""

    def job(self, key: JobKey) -> Document:
        """Return the position of a job and why it waits. If the job holds room and waits for more workers, `growth` has
        the position of these workers and the reason of the wait."""

    def reports(self, key: JobKey) -> Document:
        """Return the reports of the pods of a job (`coordinator.query.report_documents`)."""

    def status(self) -> Document:
        """Return the numbers of dispatch and of the queues."""


def unknown_reports(error: Exception) -> Document:
    """Return what stands for the reports of a job's pods if nobody answers."""
    return {"unknown": str(error)}


def parse_document(value: Any) -> Document:
    """Return a coordinator's answer as a document. Raises CoordinatorError if the text is not a JSON object."""
    if not isinstance(value, dict):
        raise CoordinatorError("the coordinator's answer is not a JSON object: is it a torchq coordinator?")
    return value
