"""The health and the status of a coordinator, and its read-only API, over HTTP.

One rule: no request changes anything in the coordinator, the store or the cluster.

    /healthz   200 while every loop of the process turns, else 503 with those that do not
    /readyz    200 when the caches are read, else 503 with those that are not
    /status    JSON: identity of the leader, epoch, counts, what is failing
    /v1/...    JSON: the queues (coordinator.http.queue_api)

The first two are also at a port of their own (coordinator.http.life_port). The cost of all requests is bounded
(coordinator.http.bounded_server). Beyond that bound, every path except the first two is answered with 503.
"""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import orjson

from coordinator import settings as settings_module
from coordinator.cache import noted_jobs
from coordinator.cache.routing_rules import DEFAULT_QUEUE
from coordinator.cache.views import JobView
from coordinator.elastic import dry_run
from coordinator.http import life_port, listening_ports, pool_reading
from coordinator.http.bounded_server import Answer, HttpServer, Question
from coordinator.http.queue_api import QueueApi, StaleCaches, wait_percentiles
from coordinator.leader.coordinator import Coordinator
from coordinator.life.health_checks import Check
from coordinator.life.process_checks import cache_check, loop_checks
from coordinator.query.queries import StoreQueries
from coordinator.query.questions import IDENTITY, Document
from coordinator.routing import eligibility, queue_specs
from coordinator.routing.eligibility import Eligibility
from coordinator.routing.feasibility import ClusterLimits
from coordinator.settings import parse_pool
from crds.resources.amounts import Amounts

SETTING = "health_port"
WAITS_SECONDS = 5.0
"""The largest age, in seconds, of the percentiles of waits. They are not computed for each request, because that reads
all jobs."""
log = logging.getLogger(__name__)


def status(coordinator: Coordinator) -> dict[str, Any]:
    """Return the document of /status."""
    leadership, counts = coordinator.leadership, coordinator.counts
    return {
        "leading": leadership.leading,
        "leader": leadership.holder,
        "epoch": leadership.epoch,
        "synced": coordinator.watches.synced,
        "failing": _failing(coordinator),
        "jobs": len(coordinator.watches.jobs.values()),
        "routed": counts.routed,
        "picked": counts.picked,
        "dispatched": counts.dispatched,
        "rebuilds": counts.rebuilds,
        "skippedObjects": coordinator.watches.errors.objects,
        "skips": coordinator.watches.errors.times,
        "skipped": coordinator.watches.errors.summary,
    }


class ApiStatus:
    """The part of /v1/status that describes the coordinator, beside the numbers of the queues."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._waits: dict[str, Any] = {}
        self._until = 0.0

    def __call__(self) -> dict[str, Any]:
        coordinator, now = self._coordinator, time.monotonic()
        if not self._waits or now > self._until:
            self._waits, self._until = wait_percentiles(coordinator.watches.jobs.values()), now + WAITS_SECONDS
        return {
            "leader": coordinator.leadership.holder,
            "answeredBy": coordinator.leadership.identity,
            "synced": coordinator.watches.synced,
            "failing": _failing(coordinator),
            "waits": self._waits,
        }


def stop_policies(coordinator: Coordinator) -> dict[str, str]:
    """Return the stop policy of every TenantQueue by name."""
    return {queue.metadata.name: queue.spec.stop_policy for queue in coordinator.watches.queues.values()}


def is_deleted(coordinator: Coordinator, queue: str) -> bool:
    """Return whether a queue has no TenantQueue, and is implied by no namespace."""
    if coordinator.watches.queues.get("", queue) is not None:
        return False
    is_namespace = coordinator.watches.rule_watches.namespaces.get("", queue) is not None
    return not (coordinator.settings.implicit_queues and (is_namespace or queue == DEFAULT_QUEUE))


@contextmanager
def serving(coordinator: Coordinator, port: int, queries: StoreQueries | None = None) -> Iterator[int]:
    """Answer requests while the block runs, and publish on the Lease where they go; yield the port.

    The Lease names the URL of an address on loopback, and the Service for any other address, which is the address of a
    pod. The address is the one in the settings. Port 0 turns the server off; port -1 means any free port. Without
    `queries` there is no /v1. Raises CoordinatorError, which names the port, if the port cannot be used.
    """
    if port == 0:
        yield 0
        return
    address = coordinator.settings.health_address
    handler = RequestHandler(coordinator, queue_api(coordinator, queries) if queries else None)
    identity = {IDENTITY: coordinator.leadership.identity}
    server = HttpServer(handler.answer_probe, handler.answer, lambda: identity)
    with listening_ports.listening(server, SETTING, address, port) as bound:
        if queries is not None and address in listening_ports.LOOPBACK:
            coordinator.leadership.address = f"http://127.0.0.1:{bound}"
        elif queries is not None:
            coordinator.leadership.service = coordinator.settings.service
        yield bound


def _failing(coordinator: Coordinator) -> str:
    late = "; ".join(f"{name} hangs" for name in coordinator.turns.late())
    parts = (coordinator.failing, coordinator.watches.failing, coordinator.leadership.failing, late)
    return "; ".join(dict.fromkeys(part for part in parts if part))


@dataclass(frozen=True, slots=True)
class CoordinatorLife:
    """The checks of one coordinator, leading or not. A Redis or an API server that is away fails no check: users then
    get the coordinator's own message about the failure."""

    coordinator: Coordinator

    def healthz(self) -> list[Check]:
        """Return a check of each loop."""
        return loop_checks(self.coordinator.turns)

    def readyz(self) -> list[Check]:
        """Return whether the caches are read, so that the coordinator can answer."""
        coordinator = self.coordinator
        stopping = "the process is stopping" if coordinator.stop.is_set() else ""
        return [
            *map(cache_check, coordinator.watches.informers),
            Check("queues", note=coordinator.failing or coordinator.redis.unfit),
            Check("leadership", note=coordinator.leadership.failing),
            Check("shutdown", stopping),
        ]


@dataclass(frozen=True, slots=True)
class RequestHandler:
    """Answers the requests for all paths."""

    coordinator: Coordinator
    api: QueueApi | None

    def answer_probe(self, request: Question) -> Answer | None:
        """Return the answer to a probe, which waits for nothing; None for any other request.

        Probes are answered under any load: a kubelet that gets no answer restarts the coordinator.
        """
        if not listening_ports.is_for_address(request.host, self.coordinator.settings.health_address):
            return life_port.WRONG_HOST
        return life_port.probe_answer(CoordinatorLife(self.coordinator), request.path)

    def answer(self, request: Question) -> Answer:
        """Return the answer to a request; an error becomes an answer as well."""
        try:
            return self.answer_probe(request) or self._answer(request.path)
        except Exception:
            log.exception("GET %s", request.path[:100])
            return _text(500, "the request failed in the coordinator: see its log")

    def _answer(self, path: str) -> Answer:
        match path:
            case "/status":
                return _json(200, status(self.coordinator))
            case _ if self.api is not None and path.startswith("/v1/"):
                return _json(*self.api.answer(path))
        return _text(404, "try /healthz, /readyz or /status")


def _text(code: int, message: str) -> Answer:
    return Answer(code, message.encode() + b"\n", "text/plain")


def _json(code: int, document: Any) -> Answer:
    return Answer(code, orjson.dumps(document) + b"\n", "application/json")


def queue_api(coordinator: Coordinator, queries: StoreQueries) -> QueueApi:
    """Return the read-only API of a coordinator."""
    watches, implicit = coordinator.watches, coordinator.settings.implicit_queues

    def eligibility_of(job: JobView) -> Eligibility:
        rules = replace(watches.rules(), implicit=implicit)
        return eligibility.with_hint(eligibility.of(job, rules, time.time()), job, rules)

    return QueueApi(
        queries,
        watches.jobs.get,
        ApiStatus(coordinator),
        eligibility_of,
        lambda: limits(coordinator),
        queries.suppose,
        lambda: scale_plan(coordinator, queries),
        lambda: pool(coordinator, queries),
        lambda: settings_module.describe(coordinator.settings),
    )


def scale_plan(coordinator: Coordinator, queries: StoreQueries) -> Document:
    """Return the plan of resizes as it would be now. Raises StaleCaches if the caches may be outdated."""
    _check_caches(coordinator)
    watches, leading = coordinator.watches, coordinator.leadership.leading
    return dry_run.describe(watches, coordinator.memory, coordinator.settings, queries.snapshot, leading=leading)


def pool(coordinator: Coordinator, queries: StoreQueries) -> Document:
    """Return what is free on the nodes of the pool. Raises StaleCaches if the caches may be outdated."""
    _check_caches(coordinator)
    return pool_reading.document(coordinator, queries.node_places)


def idle_usage(coordinator: Coordinator) -> dict[str, Amounts]:
    """Return by queue the amounts that the idle growth of its jobs uses."""
    return noted_jobs.idle_usage(coordinator.watches.autoscaled.values())


def _check_caches(coordinator: Coordinator) -> None:
    watches = coordinator.watches
    if not watches.synced or watches.failing:
        raise StaleCaches(watches.failing or "the coordinator has not read the cluster yet")


def limits(coordinator: Coordinator) -> ClusterLimits:
    """Return the limits that decide whether a job could ever run. Raises StaleCaches if the caches may be outdated.

    A coordinator that does not lead knows the limits, too.
    """
    _check_caches(coordinator)
    watches, settings = coordinator.watches, coordinator.settings
    return ClusterLimits(
        rules=replace(watches.rules(), implicit=settings.implicit_queues),
        specs={queue.metadata.name: queue_specs.spec(queue) for queue in watches.queues.values()},
        setting=parse_pool(settings.pool),
        nodes=tuple(watches.nodes.values()) if watches.nodes else (),
        longest_grace=settings.longest_grace,
    )
