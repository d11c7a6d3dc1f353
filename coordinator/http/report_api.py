"""The reports and questions of training code over HTTP, on a port of its own.

One rule: a request is for one job, and needs the token of that job. This port serves nothing of the read-only API, and
a request changes nothing but the reports of the job in its path.

    POST /v1/jobs/NAMESPACE/NAME/report           JSON {pod, step, samplesPerSecond?, loss?, gauges?, checkpoint?,
                                                       last?}
    GET  /v1/jobs/NAMESPACE/NAME/world?pod=NAME   JSON (coordinator.reports.worlds)
    POST /apis/trainer.kubeflow.org/v1alpha1/namespaces/NAMESPACE/trainjobs/NAME/status?pod=NAME
                                                  JSON (coordinator.reports.kubeflow_body), as a server of Kubeflow
                                                  Trainer takes; the answer is the body

    200   done; the answer to a report has the number of a request to save, if there is one: {"checkpoint": N}
    400   the body is no report, or the job has no such pod          401   no token of this installation
    403   the token of another job                                   404   no such path or job
    405   another method                                             410   the job has ended
    411   the length of the body is not given                        413   the body is too large
    422   the body is none of Kubeflow Trainer                       503   the coordinator does not know the jobs yet
    429   the pod has reported less than 5 s ago (Retry-After)
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit

import orjson

from coordinator.cache.views import JobView
from coordinator.http.bounded_server import Answer, Question
from coordinator.reports import body, kubeflow_body
from coordinator.reports.batches import ReportBatches
from coordinator.reports.body import InvalidReport
from coordinator.reports.report_values import Report
from coordinator.reports.tokens import ReportKey
from crds.keys import JobKey
from kube.errors import ClusterError
from reconcilers.pods import progress_protocol

T = TypeVar("T")
METHODS = {"report": "POST", "world": "GET", "status": "POST"}
"""What is at the end of a path -> its method."""
MOST_FIELDS = 4
"""The most fields of a query."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Request:
    """A request that has been let in."""

    job: JobView
    what: str
    pod: str
    """The pod in the query."""
    body: bytes


@dataclass(frozen=True, slots=True)
class ReportApi:
    """Answers the requests of training code."""

    key: ReportKey
    batches: ReportBatches
    find: Callable[[str, str], JobView | None]
    """A function that returns the job of a namespace and name."""
    has_pod: Callable[[JobKey, str], bool]
    """A function that returns whether a job has a pod of this name."""
    is_ready: Callable[[], bool]
    """A function that returns whether the jobs and pods are known."""
    world: Callable[[JobKey, str], Mapping[str, Any] | None]
    """A function that returns the world of a job and pod; None if the job is gone. It may wait for the API server."""

    def answer_quick(self, question: Question) -> Answer | None:
        """Return the answer to a report or to a request that is refused; None for a request that has to wait."""
        return _answer(lambda: self._answer_quick(question))

    def answer_slow(self, question: Question) -> Answer:
        """Return the answer to a request for a world."""
        return _answer(lambda: self._answer_slow(question))

    def _answer_quick(self, question: Question) -> Answer | None:
        request = self._admit(question)
        if request.what == "status":
            return self._take_status(request)
        return self._take_report(request) if request.what == "report" else None

    def _answer_slow(self, question: Question) -> Answer:
        request = self._admit(question)
        world = self.world(request.job.key, request.pod)
        if world is None:
            raise _Refused(HTTPStatus.NOT_FOUND, "no such job")
        return _json(HTTPStatus.OK, world)

    def _admit(self, question: Question) -> _Request:
        """Return a request that is let in. Raises _Refused."""
        namespace, name, what, pod = _read(question.path)
        if question.method != METHODS[what]:
            raise _Refused(HTTPStatus.METHOD_NOT_ALLOWED, f"use {METHODS[what]}", {"Allow": METHODS[what]})
        scheme, _, token = question.authorization.partition(" ")
        uid = self.key.uid(token.strip()) if scheme.lower() == "bearer" else None
        if uid is None:
            raise _Refused(HTTPStatus.UNAUTHORIZED, "no valid token", {"WWW-Authenticate": "Bearer"})
        if not self.is_ready():
            message = "the coordinator has not read the cluster yet"
            raise _Refused(HTTPStatus.SERVICE_UNAVAILABLE, message, {"Retry-After": "5"})
        job = self.find(namespace, name)
        if job is None:
            raise _Refused(HTTPStatus.NOT_FOUND, "no such job")
        if not _is_token_of(job, uid):
            raise _Refused(HTTPStatus.FORBIDDEN, "the token is for another job")
        if job.finished:
            raise _Refused(HTTPStatus.GONE, "the job has ended")
        return _Request(job, what, pod, question.body)

    def _take_report(self, request: _Request) -> Answer:
        try:
            report = body.parse(request.body)
        except InvalidReport as error:
            raise _Refused(HTTPStatus.BAD_REQUEST, str(error)) from error
        self._take(request.job, report)
        return _json(HTTPStatus.OK, {"checkpoint": request.job.save_request} if request.job.save_request else {})

    def _take_status(self, request: _Request) -> Answer:
        try:
            report = kubeflow_body.parse(request.body, request.pod)
        except InvalidReport as error:
            raise _Refused(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)) from error
        if report is not None:
            self._take(request.job, report)
        return Answer(HTTPStatus.OK, request.body, "application/json", {})

    def _take(self, job: JobView, report: Report) -> None:
        """Take a report. Raises _Refused."""
        if not self.has_pod(job.key, report.pod):
            raise _Refused(HTTPStatus.BAD_REQUEST, "pod: the job has no such pod")
        report = replace(report, run=job.health.run if job.health is not None else "")
        if wait := self.batches.take(job.key, report, job.save_request):
            raise _Refused(HTTPStatus.TOO_MANY_REQUESTS, f"report again in {wait} s", {"Retry-After": str(wait)})


class _Refused(Exception):
    """A request that is refused, with the answer to it."""

    def __init__(self, code: HTTPStatus, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.answer = _json(code, {"code": int(code), "message": message}, headers)


def _is_token_of(job: JobView, uid: str) -> bool:
    """Return whether the token of a uid is the token of a job, and not of an earlier job of the same name."""
    return job.key.uid == uid


def _read(path: str) -> tuple[str, str, str, str]:
    """Return the namespace and the name of the job, the last part of the path, and the pod of its query. Raises
    _Refused."""
    try:
        parts = urlsplit(path)
        query = parse_qs(parts.query, max_num_fields=MOST_FIELDS)
    except ValueError:
        raise _Refused(HTTPStatus.NOT_FOUND, "no such path") from None
    match [unquote(part) for part in parts.path.split("/")]:
        case ["", "v1", "jobs", namespace, name, "report" | "world" as what]:
            return namespace, name, what, query.get("pod", [""])[-1]
        case ["", "apis", progress_protocol.GROUP, "v1alpha1", "namespaces", namespace, "trainjobs", name, "status"]:
            return namespace, name, "status", query.get("pod", [""])[-1]
    raise _Refused(HTTPStatus.NOT_FOUND, "no such path")


def _answer(make: Callable[[], T]) -> T | Answer:
    """Return an answer; an error becomes an answer as well."""
    try:
        return make()
    except _Refused as refused:
        return refused.answer
    except ClusterError as error:
        log.warning("the job of a pod cannot be read: %s", error)
        return _Refused(HTTPStatus.SERVICE_UNAVAILABLE, "the job cannot be read", {"Retry-After": "5"}).answer
    except Exception:
        log.exception("a request of a pod")
        return _Refused(HTTPStatus.INTERNAL_SERVER_ERROR, "the request failed: see the coordinator's log").answer


def _json(code: HTTPStatus, document: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Answer:
    return Answer(code, orjson.dumps(document) + b"\n", "application/json", headers or {})
