"""The health and the status of a coordinator, and its read-only API, over HTTP; and what it shows in metrics.

One rule: no request changes anything in the coordinator, the store or the cluster. A page of metrics waits for no
Redis, no API server and no pick.

    /healthz   200 while every loop of the process turns, else 503 with those that do not
    /readyz    200 when the caches are read, else 503 with those that are not
    /status    JSON: identity of the leader, epoch, counts, what is failing
    /v1/...    JSON: the queues (coordinator.http.queue_api)

Who asks is known by the token of an account (coordinator.access), or by a job's own token. On loopback, which every
user of the machine reaches, only the first two are answered without a token. In a pod, the API server lets nobody
through who may not ask; without a token, answers there name nothing.

The first two are also at a port of their own (coordinator.http.life_port). The cost of all requests is bounded
(coordinator.http.bounded_server). Beyond that bound, every path except the first two is answered with 503.
"""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from coordinator.access.readers import HEADER, NOBODY, Reader
from coordinator.access.token_reviews import TokenReviews
from coordinator.cache import noted_jobs
from coordinator.cache.routing_rules import DEFAULT_QUEUE
from coordinator.http import json_answers, life_port, listening_ports, pool_reading
from coordinator.http.bounded_server import Answer, HttpServer, Question
from coordinator.http.json_answers import NotTold, refusal
from coordinator.http.queue_api import QueueApi, failing
from coordinator.leader.coordinator import Coordinator
from coordinator.life.health_checks import Check
from coordinator.life.process_checks import ProcessLife, cache_check
from coordinator.metrics import leader_metrics, process_metrics, process_page
from coordinator.metrics.queue_gauge_reader import QueueGaugeReader
from coordinator.metrics.queue_names import QueueNames
from coordinator.metrics.registry import Sample, number
from coordinator.query.queries import StoreQueries
from coordinator.query.questions import IDENTITY
from coordinator.reports.tokens import ReportKey
from crds.resources.amounts import Amounts
from queues.storage.stats import QueueStats

SETTING = "health_port"
log = logging.getLogger(__name__)


def status(coordinator: Coordinator, reader: Reader) -> dict[str, Any]:
    """Return the document of /status. Objects are named to a reader of all namespaces only."""
    leadership, counts = coordinator.leadership, coordinator.counts
    return {
        "leading": leadership.leading,
        "leader": leadership.holder,
        "epoch": leadership.epoch,
        "synced": coordinator.watches.synced,
        "failing": failing(coordinator),
        "jobs": len(coordinator.watches.jobs.values()),
        "routed": counts.routed,
        "picked": counts.picked,
        "dispatched": counts.dispatched,
        "rebuilds": counts.rebuilds,
        "skippedObjects": coordinator.watches.errors.objects,
        "skips": coordinator.watches.errors.times,
        **({"skipped": coordinator.watches.errors.summary} if reader.everywhere else {}),
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
def serving(
    coordinator: Coordinator,
    port: int,
    queries: StoreQueries | None = None,
    reviews: TokenReviews | None = None,
    key: ReportKey | None = None,
) -> Iterator[int]:
    """Answer requests while the block runs, and publish on the Lease where they go; yield the port.

    `reviews` are those of the tokens that are shown, by default by the API server of the coordinator; `key` is the key
    of jobs' own tokens.

    The Lease names the URL of an address on loopback, and the Service for any other address, which is the address of a
    pod. The address is the one in the settings. Port 0 turns the server off; port -1 means any free port. Without
    `queries` there is no /v1. Raises CoordinatorError, which names the port, if the port cannot be used.
    """
    if port == 0:
        yield 0
        return
    address = coordinator.settings.health_address
    api = QueueApi(coordinator, queries) if queries else None
    handler = RequestHandler(coordinator, api, reviews or TokenReviews(coordinator.cluster), key)
    identity = {IDENTITY: coordinator.leadership.identity}
    server = HttpServer(handler.answer_probe, handler.answer, lambda: identity)
    with listening_ports.listening(server, SETTING, address, port) as bound:
        if queries is not None and address in listening_ports.LOOPBACK:
            coordinator.leadership.address = f"http://127.0.0.1:{bound}"
        elif queries is not None:
            coordinator.leadership.service = coordinator.settings.service
        yield bound


def life(coordinator: Coordinator) -> ProcessLife:
    """Return the checks of one coordinator, leading or not. While a server is away, users get the coordinator's own
    message about that."""

    def lacks() -> list[Check]:
        stopping = "the process is stopping" if coordinator.stop.is_set() else ""
        return [
            *map(cache_check, coordinator.watches.informers),
            Check("queues", note=coordinator.failing or coordinator.redis.unfit),
            Check("leadership", note=coordinator.leadership.failing),
            Check("shutdown", stopping),
        ]

    return ProcessLife(coordinator.turns, lacks)


@dataclass(frozen=True, slots=True)
class RequestHandler:
    """Answers the requests for all paths."""

    coordinator: Coordinator
    api: QueueApi | None
    reviews: TokenReviews
    key: ReportKey | None = None

    def answer_probe(self, request: Question) -> Answer | None:
        """Return the answer to a probe, which waits for nothing; None for any other request.

        Probes are answered under any load: a kubelet that gets no answer restarts the coordinator.
        """
        if not listening_ports.is_for_address(request.host, self.coordinator.settings.health_address):
            return life_port.WRONG_HOST
        return life_port.probe_answer(life(self.coordinator), request.path)

    def answer(self, request: Question) -> Answer:
        """Return the answer to a request; an error becomes an answer as well."""
        try:
            return self.answer_probe(request) or self._answer(request.path, self._reader(request))
        except NotTold as error:
            return json_answers.encode(*refusal(error))
        except Exception:
            log.exception("GET %s", request.path[:100])
            return json_answers.text(500, "the request failed in the coordinator: see its log")

    def _reader(self, request: Question) -> Reader:
        """Return who asks. Raises NotTold for a token that is not valid, or where one is missing, and if the API server
        does not answer."""
        if request.token:
            return json_answers.reader_of(self.reviews, request.token, "coordinator")
        scheme, _, token = request.authorization.partition(" ")
        uid = self.key.uid(token.strip()) if self.key is not None and scheme.lower() == "bearer" else None
        if uid is not None:
            return Reader(job=uid)
        if self.coordinator.settings.health_address in listening_ports.LOOPBACK:
            raise NotTold(HTTPStatus.UNAUTHORIZED, f"the request has no token: send one of an account in {HEADER}")
        return NOBODY

    def _answer(self, path: str, reader: Reader) -> Answer:
        match path:
            case "/status":
                return json_answers.encode(200, status(self.coordinator, reader))
            case _ if self.api is not None and path.startswith("/v1/"):
                return json_answers.encode(*self.api.answer(path, reader))
        return json_answers.text(404, "try /healthz, /readyz or /status")


def idle_usage(coordinator: Coordinator) -> dict[str, Amounts]:
    """Return by queue the amounts that the idle growth of its jobs uses."""
    return noted_jobs.idle_usage(coordinator.watches.autoscaled.values())


def queue_gauge_reader(
    coordinator: Coordinator, queries: StoreQueries, stats: Callable[[], QueueStats], queues: QueueNames
) -> QueueGaugeReader:
    """Return the reading of the queues for the gauges of a leader."""
    return QueueGaugeReader(
        snapshot=queries.snapshot,
        stats=stats,
        jobs=coordinator.watches.jobs.values,
        policies=lambda: stop_policies(coordinator),
        leading=lambda: coordinator.leadership.leading,
        cost=coordinator.settings.cost,
        queues=queues,
        fragments=lambda: pool_reading.fragments(coordinator),
    )


def samples(coordinator: Coordinator) -> Iterator[Sample]:
    """Yield who leads, whether the leader's loop turns, whether Redis answers and is fit, and how often watches began
    again."""
    leads = coordinator.leadership.leading
    yield number(leader_metrics.MASTER_STATUS, leads, leader_metrics.LEASE_NAME)
    if leads:
        age = next((turn.age for turn in coordinator.turns.loops if turn.name == "term"), 0.0)
        yield number(leader_metrics.LAST_TURN, time.time() - age)
        if coordinator.last_epoch >= coordinator.leadership.epoch:  # else this term has not begun to rebuild
            yield number(leader_metrics.EPOCH, coordinator.last_epoch)
    if coordinator.redis.answers is not None:
        yield number(process_metrics.REDIS_UP, coordinator.redis.answers)
    if coordinator.redis.answers:
        yield number(process_metrics.REDIS_FIT, not coordinator.redis.unfit)
    watches = coordinator.watches
    yield from process_page.restarts(
        (*watches.informers, *watches.foreign.informers, *watches.requests.kinds.informers)
    )
