"""The coordinator's read-only API: which document is at which path.

One rule: answers are bounded, hold nothing secret, and are the same from a coordinator that does not lead. What of an
answer a reader gets, `coordinator.query.bounds` decides.
"""

import heapq
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import Any

import pydantic

from coordinator import settings as settings_module
from coordinator.access.readers import AUDIENCE, HEADER, Reader
from coordinator.cache.views import JobView
from coordinator.elastic import dry_run
from coordinator.http import pool_reading
from coordinator.http.json_answers import REFUSALS, MalformedQuery, NotTold, StaleCaches, refusal
from coordinator.http.openapi import process_models, queue_models
from coordinator.http.openapi.operations import Description, Operation
from coordinator.leader.coordinator import Coordinator
from coordinator.query import api_paths, figures, supposition
from coordinator.query.bounds import BoundQueries, Bounds
from coordinator.query.queries import StoreQueries
from coordinator.query.questions import MOST_FORECAST_PICKS, UNKNOWN_PREFIX, Document, UnknownObject
from coordinator.routing import eligibility, feasibility, queue_specs
from coordinator.routing.feasibility import ClusterLimits, JobRequest
from coordinator.settings import parse_pool
from crds.keys import JobKey
from queues.errors import QueueError

_UID = ("uid", "ask for the job of that uid only")
OPERATIONS = (
    Operation("/v1/queues", "All queues with their settings and figures", queue_models.QueueItems),
    Operation("/v1/queues/{name}", "One queue", queue_models.Queue),
    Operation(
        "/v1/places", "The places of the first waiting jobs of some queues", queue_models.PlaceItems,
        (("queues", "names of queues, separated by commas"),),
    ),
    Operation(
        "/v1/jobs/{namespace}/{name}/why", "Where a job stands, and why it waits", queue_models.JobState, (_UID,)
    ),
    Operation("/v1/jobs/{namespace}/{name}/report", "What the pods of a job report", queue_models.JobReport, (_UID,)),
    Operation(
        "/v1/check", "Whether a job could ever run", queue_models.Findings, (("job", "the demands of the job as JSON"),)
    ),
    Operation(
        "/v1/next", "The next picks", queue_models.ForecastPicks,
        (("n", "how many"), ("roomy", "1: as if the pool had room for everything")),
    ),
    Operation("/v1/pool", "The nodes by shape, with what is free on them", queue_models.PoolNodes),
    Operation("/v1/scale/plan", "The plan of resizes of elastic jobs", queue_models.ScalePlan),
    Operation("/v1/status", "The health of the installation", process_models.SystemStatus),
    Operation("/v1/settings", "The settings of this coordinator", process_models.SettingsInUse),
    Operation("/v1/openapi.json", "This document", dict[str, Any]),
)  # fmt: skip
API = Description(
    title="torchq: read-only API of the coordinators",
    text="Users reach it through the API server's proxy of the coordinators' Service. With the token of an "
    f"account for the audience {AUDIENCE} in the header {HEADER}, answers name the jobs that the account may list. "
    "Without a token they name none.",
    operations=OPERATIONS,
    errors={
        "400": "the query is wrong; the message says how",
        "401": "the API server does not accept the token, or the port is on loopback and the request has none",
        "403": "the token is of no account that may list the TorchJobs of this namespace",
        "404": "there is no such object",
        "503": "Redis or the caches of this coordinator do not answer",
    },
)
LATEST = 1000
"""The number of last admissions from which the percentiles of waits are computed."""
NEXT = 20
KNOWN_PATHS = (
    "try /v1/queues, /v1/next, /v1/places, /v1/check, /v1/jobs/NAMESPACE/NAME/why (or /report), /v1/pool, "
    "/v1/scale/plan, /v1/status, /v1/settings or /v1/openapi.json"
)
WAITS_SECONDS = 5.0
"""The largest age, in seconds, of the percentiles of waits. They are not computed for each request, because that reads
all jobs."""


class QueueApi:
    """Answers GET requests for paths below /v1."""

    def __init__(self, coordinator: Coordinator, queries: StoreQueries) -> None:
        self._coordinator = coordinator
        self._queries = queries
        self._waits: dict[str, Any] = {}
        self._waits_until = 0.0

    def answer(self, path: str, reader: Reader) -> tuple[int, Document]:
        """Return a status code and a document. A request that fails is answered with a Status that has a message."""
        try:
            return HTTPStatus.OK, self._answer(path, self.bounds(reader))
        except REFUSALS as error:
            return refusal(error)

    def _answer(self, path: str, bounds: Bounds) -> Document:
        queries, (parts, query) = BoundQueries(self._queries, lambda _: bounds), api_paths.parse(path)
        match parts:
            case ["v1", "queues", name]:
                return queries.queue(name)
            case ["v1", "jobs", namespace, name, "why"]:
                _check_reader(bounds.reader, namespace)
                return bounds.job(self._why(namespace, name, query.get("uid", "")))
            case ["v1", "jobs", namespace, name, "report"]:
                return self._reports(namespace, name, query.get("uid", ""), bounds.reader)
            case ["v1", *rest] if (answer := self._answers(bounds, queries).get("/".join(rest))) is not None:
                return answer(query)
        raise UnknownObject(f"{UNKNOWN_PREFIX}/{'/'.join(parts)} here; {KNOWN_PATHS}")

    def _answers(self, bounds: Bounds, queries: BoundQueries) -> Mapping[str, Callable[[Mapping[str, str]], Document]]:
        """Return the answers to the paths that name no object."""
        return {
            "queues": lambda _: {"items": queries.queues()},
            "check": lambda query: self._check(_parse_job(query), bounds.reader),
            "next": lambda query: queries.next(_parse_count(query), roomy=query.get("roomy") == "1"),
            "places": lambda query: {"items": queries.places(_parse_queues(query))},
            "pool": lambda _: self._pool(),
            "scale/plan": lambda _: bounds.plan(self._scale_plan()),
            "status": lambda _: self._status(),
            "settings": lambda _: settings_module.describe(self._coordinator.settings),
            "openapi.json": lambda _: API.document,
        }

    def bounds(self, reader: Reader) -> Bounds:
        """Return what a reader is told. A queue is listed to those for whom it was made, and to those whose jobs use
        it."""
        watches = self._coordinator.watches
        rules = replace(watches.rules(), implicit=self._coordinator.settings.implicit_queues)

        def uses(queue: str) -> bool:
            return any(eligibility.is_usable(queue, each, rules) for each in reader.namespaces or ("",))

        def is_listed(queue: str) -> bool:
            if queue in reader.namespaces:
                return True
            spec = rules.queues.get(queue)
            if spec is not None and not spec.allows("", {}) and uses(queue):
                return True
            return any(reader.may_read(job.key.namespace) for job in watches.jobs.indexed(queue))

        return Bounds(reader, uses, is_listed)

    def _check(self, request: JobRequest, reader: Reader) -> Document:
        _check_reader(reader, request.namespace)
        return feasibility.document(feasibility.judge_submission(request, self._limits()))

    def _why(self, namespace: str, name: str, uid: str) -> Document:
        newest = self._coordinator.watches.jobs.get(namespace, name)
        job = newest if newest is not None and uid in ("", newest.key.uid) else None
        if job is None and not uid:
            raise UnknownObject(f"{UNKNOWN_PREFIX}job {namespace}/{name}")
        document = self._queries.job(job.key if job else JobKey(namespace, name, uid))
        if job is None or job.finished:
            return document
        if job.admission:
            now = time.time()
            return document | self._with_limits(
                lambda job, limits: supposition.describe_rest(job, document, limits, now), job
            )
        if document["state"] == "waiting":
            return document | self._with_limits(partial(supposition.describe_room, document), job)
        return document | self._absent(job) if document["state"] == "absent" else document

    def _reports(self, namespace: str, name: str, uid: str, reader: Reader) -> Document:
        job = self._coordinator.watches.jobs.get(namespace, name)
        if job is None or reader.job != job.key.uid:
            _check_reader(reader, namespace)
        if job is None or uid not in ("", job.key.uid):
            raise UnknownObject(f"{UNKNOWN_PREFIX}job {namespace}/{name}")
        return self._queries.reports(job.key)

    def _absent(self, job: JobView) -> Document:
        """Return why the job is in no queue's order. If the owner of a job could resume the job, add the result of a
        resumption.
        """
        rules = replace(self._coordinator.watches.rules(), implicit=self._coordinator.settings.implicit_queues)
        found = eligibility.with_hint(eligibility.of(job, rules, time.time()), job, rules)
        document = {} if job.stopped else supposition.describe_unqueued(job, found)
        if job.invalid or job.cancelled or not (job.suspended or found.code in supposition.OUT_OF_ORDER):
            return document
        resumed = self._with_limits(
            lambda job, limits: supposition.describe_if_resumed(job, limits, self._queries.suppose), job
        )
        return document | ({"ifResumed": resumed} if resumed else {})

    def _with_limits(self, describe: Callable[[JobView, ClusterLimits], Document], job: JobView) -> Document:
        """Return a document that depends on the limits of the cluster; an empty document if the caches may be
        outdated."""
        try:
            return describe(job, self._limits())
        except StaleCaches:
            return {}

    def _scale_plan(self) -> Document:
        """Return the plan of resizes as it would be now. Raises QueueError and StaleCaches."""
        self._check_caches()
        coordinator, places = self._coordinator, self._queries.node_places()
        return dry_run.describe(
            coordinator.watches,
            coordinator.memory,
            coordinator.settings,
            self._queries.snapshot,
            leading=coordinator.leadership.leading,
            places=places,
        )

    def _pool(self) -> Document:
        """Return what is free on the nodes of the pool. Raises QueueError and StaleCaches."""
        self._check_caches()
        return pool_reading.document(self._coordinator, self._queries.node_places)

    def _limits(self) -> ClusterLimits:
        """Return the limits that decide whether a job could ever run. Raises StaleCaches.

        A coordinator that does not lead knows the limits, too.
        """
        self._check_caches()
        watches, settings = self._coordinator.watches, self._coordinator.settings
        return ClusterLimits(
            rules=replace(watches.rules(), implicit=settings.implicit_queues),
            specs={queue.metadata.name: queue_specs.spec(queue) for queue in watches.queues.values()},
            setting=parse_pool(settings.pool),
            nodes=tuple(watches.nodes.values()) if watches.nodes else (),
            longest_grace=settings.longest_grace,
        )

    def _check_caches(self) -> None:
        watches = self._coordinator.watches
        if not watches.synced or watches.failing:
            raise StaleCaches(watches.failing or "the coordinator has not read the cluster yet")

    def _status(self) -> Document:
        """Return the status. If Redis cannot be reached, the document has the error instead of the numbers."""
        coordinator, now = self._coordinator, time.monotonic()
        if not self._waits or now > self._waits_until:
            self._waits, self._waits_until = wait_percentiles(coordinator.watches.jobs.values()), now + WAITS_SECONDS
        about = {
            "leader": coordinator.leadership.holder,
            "answeredBy": coordinator.leadership.identity,
            "synced": coordinator.watches.synced,
            "failing": failing(coordinator),
            "waits": self._waits,
        }
        try:
            return about | self._queries.status()
        except QueueError as error:
            return about | {"redis": str(error)}


def failing(coordinator: Coordinator) -> str:
    """Return what fails in a coordinator, in words; empty if nothing does."""
    late = "; ".join(f"{name} hangs" for name in coordinator.turns.late())
    parts = (coordinator.failing, coordinator.watches.failing, coordinator.leadership.failing, late)
    return "; ".join(dict.fromkeys(part for part in parts if part))


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
