"""The port on which a coordinator takes reports, leading or not, and what the port needs.

One rule: without a key there is no port, and nothing else changes.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from coordinator.http import listening_ports
from coordinator.http.bounded_server import HttpServer, ServerLimits
from coordinator.http.report_api import ReportApi
from coordinator.leader.coordinator import Coordinator
from coordinator.query.questions import IDENTITY
from coordinator.reports import body, worlds
from coordinator.reports.batches import ReportBatches
from coordinator.reports.report_store import ReportStore
from coordinator.reports.tokens import ReportKey
from coordinator.routing import route
from crds.api_resources import TORCHJOBS
from crds.errors import InvalidObject
from crds.keys import JobKey
from crds.torchjob import cached_parser
from crds.torchjob.torchjob import TorchJob
from kube import errors
from kube.api import Cluster
from kube.process.turns import Turns
from queues.tasks import Offer

SETTING = "report_port"
LIMITS = ServerLimits(
    connections=1024,
    connections_of_address=256,
    threads=1,
    body_bytes=body.MOST_BYTES,
    requests_of_address=250,
)
"""On one machine all pods have one address."""
JOB_SECONDS = 2.0
"""How long a job that was read for its pods is used again."""
JOBS = 256


@contextmanager
def serving(coordinator: Coordinator, key: ReportKey | None, store: ReportStore) -> Iterator[int]:
    """Take reports while the block runs; yield the port, or 0 without a key or a port in the settings.

    Raises CoordinatorError, which names the port, if the port cannot be used.
    """
    address, port = coordinator.settings.report_address, coordinator.settings.report_port
    if port == 0 or key is None:
        yield 0
        return
    batches = ReportBatches(store, _SavedJobs(coordinator).offer)
    api = report_api(coordinator, key, batches)
    identity = {IDENTITY: coordinator.leadership.identity}
    server = HttpServer(api.answer_quick, api.answer_slow, lambda: identity, LIMITS)
    with ExitStack() as running:
        running.enter_context(_writing(batches, coordinator.turns))
        yield running.enter_context(listening_ports.listening(server, SETTING, address, port))


def report_api(coordinator: Coordinator, key: ReportKey, batches: ReportBatches) -> ReportApi:
    """Return the API of a coordinator for the pods of jobs."""
    watches, jobs = coordinator.watches, _JobReader(coordinator.cluster)

    def has_pod(job: JobKey, name: str) -> bool:
        pod = watches.pods.get(job.namespace, name)
        return pod is not None and pod.job == job

    def world(job: JobKey, name: str) -> dict[str, Any] | None:
        def written_rank(pod_name: str) -> int | None:
            pod = watches.pods.get(job.namespace, pod_name)
            return pod.written_rank if pod is not None and pod.job == job else None

        found = jobs.read(job)
        return None if found is None else worlds.document(found, name, written_rank)

    return ReportApi(
        key=key,
        batches=batches,
        find=watches.jobs.get,
        has_pod=has_pod,
        is_ready=lambda: watches.jobs.synced and watches.pods.synced,
        world=world,
    )


@contextmanager
def _writing(batches: ReportBatches, turns: Turns) -> Iterator[None]:
    """Write batches in a thread while the block runs, and the last batch at the end."""
    stop = threading.Event()
    thread = threading.Thread(target=batches.run, args=(stop, turns), name="reports")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@dataclass(frozen=True, slots=True)
class _SavedJobs:
    """Jobs whose pods have answered a request to save: a worker continues with these jobs at once."""

    coordinator: Coordinator

    def offer(self, saved: Mapping[JobKey, int]) -> None:
        """Mark the jobs as work whose open request is answered. Raises QueueError."""
        watches = self.coordinator.watches
        jobs = [job for key in saved if (job := watches.job(key)) is not None]
        waiting = [job for job in jobs if 0 < job.save_request <= saved[job.key]]
        if not waiting:
            return
        rules = replace(watches.rules(), implicit=self.coordinator.settings.implicit_queues)
        tenants = [route.tenant(job.queue, job.key.namespace, rules) for job in waiting]
        # A job saves before pods of it go.
        offers = [Offer(key=job.key, tenant=of, kind="ends") for job, of in zip(waiting, tenants, strict=True)]
        self.coordinator.work.offer(offers)


class _JobReader:
    """Reads jobs from the API server, each at most once in a while, whoever asks."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._lock = threading.Lock()
        self._jobs: OrderedDict[JobKey, tuple[float, TorchJob | None]] = OrderedDict()

    def read(self, key: JobKey) -> TorchJob | None:
        """Return a job; None if the job is gone or cannot be parsed. Raises ClusterError."""
        with self._lock:
            until, job = self._jobs.get(key, (0.0, None))
            if time.monotonic() < until:
                return job
            job = self._get(key)
            self._jobs[key] = time.monotonic() + JOB_SECONDS, job
            self._jobs.move_to_end(key)
            while len(self._jobs) > JOBS:
                self._jobs.popitem(last=False)
        return job

    def _get(self, key: JobKey) -> TorchJob | None:
        try:
            job = cached_parser.parse(self._cluster.get(TORCHJOBS, key.name, key.namespace))
        except (errors.NotFound, InvalidObject):
            return None
        return job if job.key == key else None
