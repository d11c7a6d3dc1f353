"""What the recorder tells of jobs that the API server no longer has.

One rule: a page asks once when it is opened, and then once a minute at most. Without a recorder, pages say so.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from coordinator.dashboard.loads import Loads
from coordinator.dashboard.readings import FAILURES
from coordinator.dashboard.visitors import Visitor
from coordinator.query.history_answers import MOST_JOBS
from coordinator.query.questions import Document, UnknownObject

EVERY_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class RecordedJobs:
    """Jobs of the history, newest first."""

    items: Sequence[Document] = ()
    problem: str = ""
    """Why there are none to show."""


_LISTS: Loads[RecordedJobs] = Loads(EVERY_SECONDS)
_JOBS: Loads[Document | None] = Loads(EVERY_SECONDS)


def jobs(visitor: Visitor, namespace: str, queue: str) -> RecordedJobs:
    """Return the newest jobs of the history, of a namespace and a queue if they are not empty."""
    query = {name: text for name, text in (("namespace", namespace), ("queue", queue)) if text}

    def read(_: RecordedJobs | None) -> RecordedJobs:
        try:
            found = visitor.history().jobs({**query, "limit": str(MOST_JOBS)})
            return RecordedJobs(tuple(found.get("items", ())))
        except FAILURES as error:
            return RecordedJobs(problem=str(error))

    return _LISTS.get((visitor.secret, namespace, queue), read)


def job(visitor: Visitor, namespace: str, name: str, uid: str) -> Document | None:
    """Return a job of the history with its holds; None if there is none, or no recorder answers."""

    def read(_: Document | None) -> Document | None:
        try:
            return visitor.history().job(namespace, name, uid)
        except (UnknownObject, *FAILURES):
            return None

    return _JOBS.get((visitor.secret, namespace, name, uid), read)


def gone(past: RecordedJobs, present: Mapping[str, object]) -> list[Document]:
    """Return the jobs of the history that the API server no longer has; `present` has the others by uid."""
    return [each for each in past.items if each.get("uid") not in present]
