"""The coordinator's read-only API: which document is at which path.

One rule: answers are bounded, hold nothing secret, and are as good from a coordinator that does not lead.

    /v1/queues                      every queue: settings, figures, who is first
    /v1/queues/NAME                 one
    /v1/jobs/NAMESPACE/NAME/why     where a job stands and why it waits; ?uid= if it must be that one
    /v1/check?job=JSON              whether a job could ever run (coordinator.routing.feasibility), asked before it is
    made
    /v1/next?n=20                   the next picks, made by the picker itself; &roomy=1: in a pool without end
    /v1/status                      leader, workers, counters, waits
"""

import heapq
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pydantic

from coordinator.cache.views import JobView
from coordinator.query import figures, supposition
from coordinator.query.documents import Document
from coordinator.query.queries import MOST_FORETOLD, UNKNOWN, NotKnown, Reading
from coordinator.routing import feasibility
from coordinator.routing.eligibility import Standing
from coordinator.routing.feasibility import Asked, Known
from crds.keys import JobKey
from queues.errors import QueueError
from queues.values import Entry

LATEST = 1000
"""Admissions that the percentiles of waits are over."""
NEXT = 20
ELSEWHERE = "try /v1/queues, /v1/next, /v1/check, /v1/jobs/NAMESPACE/NAME/why or /v1/status"


class BadQuestion(ValueError):
    """The query makes no sense; says why."""


class NotSure(Exception):
    """The coordinator may not know the newest state of the cluster; says why."""


@dataclass(frozen=True, slots=True)
class Answerer:
    """Answers paths below /v1."""

    reading: Reading
    find: Callable[[str, str], JobView | None]
    """The job of a namespace and name."""
    about: Callable[[], Document]
    """What this process knows of itself and the cluster."""
    stands: Callable[[JobView], Standing]
    """What keeps a waiting job out of its order, by what is known of the cluster now."""
    known: Callable[[], Known]
    """What decides whether a job could ever run. NotSure."""
    suppose: Callable[[Entry], Document]
    """What would become of a job if it took its place in its queue now. QueueError."""

    def answer(self, path: str) -> tuple[int, Document]:
        """Status code and document; what is wrong is a Status with a message."""
        try:
            return HTTPStatus.OK, self._answer(path)
        except NotKnown as error:
            return HTTPStatus.NOT_FOUND, _trouble(HTTPStatus.NOT_FOUND, str(error))
        except BadQuestion as error:
            return HTTPStatus.BAD_REQUEST, _trouble(HTTPStatus.BAD_REQUEST, str(error))
        except (QueueError, NotSure) as error:
            return HTTPStatus.SERVICE_UNAVAILABLE, _trouble(HTTPStatus.SERVICE_UNAVAILABLE, str(error))

    def _answer(self, path: str) -> Document:
        parts = urlsplit(path)
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        match [unquote(part) for part in parts.path.strip("/").split("/")]:
            case ["v1", "queues"]:
                return {"items": self.reading.queues()}
            case ["v1", "queues", name]:
                return self.reading.queue(name)
            case ["v1", "check"]:
                return feasibility.document(feasibility.judge(_asked(query), self.known()))
            case ["v1", "next"]:
                return self.reading.next(_count(query), roomy=query.get("roomy") == "1")
            case ["v1", "jobs", namespace, name, "why"]:
                return self._why(namespace, name, query.get("uid", ""))
            case ["v1", "status"]:
                return self._status()
        raise NotKnown(f"{UNKNOWN}{parts.path} here; {ELSEWHERE}")

    def _why(self, namespace: str, name: str, uid: str) -> Document:
        known = self.find(namespace, name)
        job = known if known is not None and uid in ("", known.key.uid) else None
        if job is None and not uid:
            raise NotKnown(f"{UNKNOWN}job {namespace}/{name}")
        found = self.reading.job(job.key if job else JobKey(namespace, name, uid))
        if job is None or job.admission or job.finished:
            return found
        if found["state"] == "waiting":
            return found | (self._known(supposition.too_large, job) if found.get("code") == "ExceedsQuota" else {})
        return found | self._absent(job) if found["state"] == "absent" else found

    def _absent(self, job: JobView) -> Document:
        """Why the job is in no order; of one that could go on, what would become of it."""
        stands = self.stands(job)
        found = {} if job.suspended else supposition.absent(job, stands)
        if job.invalid or not (job.suspended or stands.code in supposition.OUT_OF_ORDER):
            return found
        would = self._known(lambda job, known: supposition.supposed(job, known, self.suppose), job)
        return found | ({"ifResumed": would} if would else {})

    def _known(self, say: Callable[[JobView, Known], Document], job: JobView) -> Document:
        """What is said by what is known of the cluster; nothing where that may be old."""
        try:
            return say(job, self.known())
        except NotSure:
            return {}

    def _status(self) -> Document:
        """Also while Redis is away: then it says so."""
        try:
            return self.about() | self.reading.status() | {"redis": ""}
        except QueueError as error:
            return self.about() | {"redis": str(error)}


def _count(query: Mapping[str, str]) -> int:
    text = query.get("n", str(NEXT))
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= MOST_FORETOLD):
        raise BadQuestion(f"n: {text[:20]!r} is not a number from 1 to {MOST_FORETOLD}")
    return int(text)


def _asked(query: Mapping[str, str]) -> Asked:
    try:
        return Asked.model_validate_json(query.get("job", ""))
    except pydantic.ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(map(str, ("job", *problem["loc"])))
        raise BadQuestion(f"{where}: {problem['msg']}") from error


def _trouble(code: int, message: str) -> Document:
    """As an API server says it, so that its proxy passes it on in words."""
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message,
            "details": {"name": "torchq-coordinator"}}  # fmt: skip


def waits(jobs: Iterable[JobView]) -> dict[str, Any]:
    """How long the jobs that were admitted last had waited since they were submitted; those that had run before left
    out. Seconds."""
    first = ((job, job.admission.admitted_at) for job in jobs if job.admission and job.admission.attempt == 1)
    latest = heapq.nlargest(LATEST, ((at.timestamp(), job.submitted) for job, at in first if at))
    lengths = [max(0.0, at - submitted) for at, submitted in latest]
    return {
        "admissions": len(lengths),
        "p50Seconds": figures.percentile(lengths, 0.5),
        "p95Seconds": figures.percentile(lengths, 0.95),
    }
