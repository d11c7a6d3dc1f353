"""The coordinator's read-only API: which document is at which path.

One rule: answers are bounded, hold nothing secret, and are the same from a coordinator that does not lead. What of an
answer a reader gets, `coordinator.query.bounds` decides.

    /v1/queues                      every queue: settings, figures, first job
    /v1/queues/NAME                 one queue
    /v1/places?queues=A,B           the places of the first waiting jobs of these queues
    /v1/jobs/NAMESPACE/NAME/why     position of a job and why it waits; ?uid= asks for the job of that uid only
    /v1/jobs/NAMESPACE/NAME/report  what the pods of a job have reported last; ?uid= as above
    /v1/check?job=JSON              whether a job could ever run (coordinator.routing.feasibility), before it is created
    /v1/next?n=20                   the next picks, made by the picker itself; &roomy=1: in a pool without limits
    /v1/pool                        the nodes by shape: what is free on them, and in which pieces
    /v1/scale/plan                  which elastic jobs would grow, or give back to whom, and which would not and why
    /v1/status                      leader, workers, counters, waits
    /v1/settings                    the settings of this coordinator, without passwords
    /v1/openapi.json                this API as an OpenAPI document (coordinator.http.openapi)
"""

import heapq
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pydantic

from coordinator.access.readers import Reader
from coordinator.cache.views import JobView
from coordinator.http.json_answers import NotTold, refusal
from coordinator.http.openapi import description
from coordinator.query import figures, supposition
from coordinator.query.bounds import Bounds
from coordinator.query.questions import MOST_FORECAST_PICKS, UNKNOWN_PREFIX, Document, Queries, UnknownObject
from coordinator.routing import feasibility
from coordinator.routing.eligibility import Eligibility
from coordinator.routing.feasibility import ClusterLimits, JobRequest
from crds.keys import JobKey
from queues.errors import QueueError
from queues.values import Entry

LATEST = 1000
"""The number of last admissions from which the percentiles of waits are computed."""
NEXT = 20
KNOWN_PATHS = (
    "try /v1/queues, /v1/next, /v1/places, /v1/check, /v1/jobs/NAMESPACE/NAME/why (or /report), /v1/pool, "
    "/v1/scale/plan, /v1/status, /v1/settings or /v1/openapi.json"
)


class MalformedQuery(ValueError):
    """The query of a request is wrong; the message says why."""


class StaleCaches(Exception):
    """The coordinator may not know the newest state of the cluster; the message says why."""


@dataclass(frozen=True, slots=True)
class QueueApi:
    """Answers GET requests for paths below /v1."""

    queries: Queries
    find: Callable[[str, str], JobView | None]
    """A function that returns the job of a namespace and name."""
    about: Callable[[], Document]
    """A function that returns the state of this process and of the cluster."""
    eligibility_of: Callable[[JobView], Eligibility]
    """A function that returns what keeps a waiting job out of the order of its queue now."""
    limits: Callable[[], ClusterLimits]
    """A function that returns the limits that decide whether a job could ever run. Raises StaleCaches."""
    suppose: Callable[[Entry], Document]
    """A function that returns the forecast for a job if it took its place in its queue now. Raises QueueError."""
    scale_plan: Callable[[], Document]
    """A function that returns the plan of resizes as it would be now. Raises QueueError and StaleCaches."""
    pool: Callable[[], Document]
    """A function that returns what is free on the nodes of the pool. Raises QueueError and StaleCaches."""
    bounds: Callable[[Reader], Bounds]
    """A function that returns what a reader is told."""
    settings: Callable[[], Document] = dict
    """A function that returns the settings of this process, without anything secret."""
    clock: Callable[[], float] = time.time

    def answer(self, path: str, reader: Reader) -> tuple[int, Document]:
        """Return a status code and a document. A request that fails is answered with a Status that has a message."""
        try:
            return HTTPStatus.OK, self._answer(path, self.bounds(reader))
        except UnknownObject as error:
            return refusal(HTTPStatus.NOT_FOUND, error)
        except MalformedQuery as error:
            return refusal(HTTPStatus.BAD_REQUEST, error)
        except NotTold as error:
            return refusal(error.code, error)
        except (QueueError, StaleCaches) as error:
            return refusal(HTTPStatus.SERVICE_UNAVAILABLE, error)

    def _answer(self, path: str, bounds: Bounds) -> Document:
        parts = urlsplit(path)
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        match [unquote(part) for part in parts.path.strip("/").split("/")]:
            case ["v1", "queues", name]:
                return self._queue(name, bounds)
            case ["v1", "jobs", namespace, name, "why"]:
                _check_reader(bounds.reader, namespace)
                return bounds.job(self._why(namespace, name, query.get("uid", "")))
            case ["v1", "jobs", namespace, name, "report"]:
                return self._reports(namespace, name, query.get("uid", ""), bounds.reader)
            case ["v1", *rest] if (answer := self._answers(bounds).get("/".join(rest))) is not None:
                return answer(query)
        raise UnknownObject(f"{UNKNOWN_PREFIX}{parts.path} here; {KNOWN_PATHS}")

    def _answers(self, bounds: Bounds) -> Mapping[str, Callable[[Mapping[str, str]], Document]]:
        """Return the answers to the paths that name no object."""
        return {
            "queues": lambda _: {"items": bounds.queues(self.queries.queues())},
            "check": lambda query: self._check(_parse_job(query), bounds.reader),
            "next": lambda query: bounds.picks(self.queries.next(_parse_count(query), roomy=query.get("roomy") == "1")),
            "places": lambda query: {"items": bounds.places(self.queries.places(_parse_queues(query)))},
            "pool": lambda _: self.pool(),
            "scale/plan": lambda _: bounds.plan(self.scale_plan()),
            "status": lambda _: self._status(),
            "settings": lambda _: self.settings(),
            "openapi.json": lambda _: description.document(),
        }

    def _queue(self, name: str, bounds: Bounds) -> Document:
        if not bounds.shows(name):
            raise UnknownObject(f"{UNKNOWN_PREFIX}queue {name} in the queues")
        return bounds.queue(self.queries.queue(name))

    def _check(self, request: JobRequest, reader: Reader) -> Document:
        _check_reader(reader, request.namespace)
        return feasibility.document(feasibility.judge_submission(request, self.limits()))

    def _why(self, namespace: str, name: str, uid: str) -> Document:
        newest = self.find(namespace, name)
        job = newest if newest is not None and uid in ("", newest.key.uid) else None
        if job is None and not uid:
            raise UnknownObject(f"{UNKNOWN_PREFIX}job {namespace}/{name}")
        document = self.queries.job(job.key if job else JobKey(namespace, name, uid))
        if job is None or job.finished:
            return document
        if job.admission:
            now = self.clock()
            return document | self._with_limits(
                lambda job, limits: supposition.describe_rest(job, document, limits, now), job
            )
        if document["state"] == "waiting":
            return document | self._with_limits(partial(supposition.describe_room, document), job)
        return document | self._absent(job) if document["state"] == "absent" else document

    def _reports(self, namespace: str, name: str, uid: str, reader: Reader) -> Document:
        job = self.find(namespace, name)
        if job is None or reader.job != job.key.uid:
            _check_reader(reader, namespace)
        if job is None or uid not in ("", job.key.uid):
            raise UnknownObject(f"{UNKNOWN_PREFIX}job {namespace}/{name}")
        return self.queries.reports(job.key)

    def _absent(self, job: JobView) -> Document:
        """Return why the job is in no queue's order. If the owner of a job could resume the job, add the result of a
        resumption.
        """
        eligibility = self.eligibility_of(job)
        document = {} if job.stopped else supposition.describe_unqueued(job, eligibility)
        if job.invalid or job.cancelled or not (job.suspended or eligibility.code in supposition.OUT_OF_ORDER):
            return document
        resumed = self._with_limits(lambda job, limits: supposition.describe_if_resumed(job, limits, self.suppose), job)
        return document | ({"ifResumed": resumed} if resumed else {})

    def _with_limits(self, describe: Callable[[JobView, ClusterLimits], Document], job: JobView) -> Document:
        """Return a document that depends on the limits of the cluster; an empty document if the caches may be
        outdated."""
        try:
            return describe(job, self.limits())
        except StaleCaches:
            return {}

    def _status(self) -> Document:
        """Return the status. If Redis cannot be reached, the document has the error instead of the numbers."""
        try:
            return self.about() | self.queries.status()
        except QueueError as error:
            return self.about() | {"redis": str(error)}


def _check_reader(reader: Reader, namespace: str) -> None:
    """Raise NotTold if a reader may not list the jobs of a namespace; whether the namespace has such a job is not
    told."""
    if not reader.may_read(namespace):
        raise NotTold(
            HTTPStatus.FORBIDDEN,
            f"jobs of namespace {namespace} are told to accounts that may list its TorchJobs: the request has no token "
            f"of one (torchq rbac --tenant {namespace})",
        )


def _parse_queues(query: Mapping[str, str]) -> list[str]:
    return [*filter(None, query.get("queues", "").split(","))]


def _parse_count(query: Mapping[str, str]) -> int:
    text = query.get("n", str(NEXT))
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= MOST_FORECAST_PICKS):
        raise MalformedQuery(f"n: {text[:20]!r} is not a number from 1 to {MOST_FORECAST_PICKS}")
    return int(text)


def _parse_job(query: Mapping[str, str]) -> JobRequest:
    try:
        return JobRequest.model_validate_json(query.get("job", ""))
    except pydantic.ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(map(str, ("job", *problem["loc"])))
        raise MalformedQuery(f"{where}: {problem['msg']}") from error


def wait_percentiles(jobs: Iterable[JobView]) -> dict[str, Any]:
    """Return percentiles of the time, in seconds, from submission to admission of the jobs that were admitted last.

    Only first attempts are counted.
    """
    first = ((job, job.admission.admitted_at) for job in jobs if job.admission and job.admission.attempt == 1)
    latest = heapq.nlargest(LATEST, ((at.timestamp(), job.submitted) for job, at in first if at))
    lengths = [max(0.0, at - submitted) for at, submitted in latest]
    return {
        "admissions": len(lengths),
        "p50Seconds": figures.percentile(lengths, 0.5),
        "p95Seconds": figures.percentile(lengths, 0.95),
    }
