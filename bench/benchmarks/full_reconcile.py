"""Whole reconciles per second (observe, plan, apply) by real worker processes, compared with the same API calls alone.

One rule: no coordinator takes part; the benchmark offers and dispatches the jobs. Each figure is compared with the same
API calls in the same run, made by as many processes.

    first   a job that was just picked: its admission is written, its service and its pods are created
    again   the same job once more: one GET, and nothing to do
"""

import re
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import orjson

from bench.errors import BenchError
from bench.report import Figures
from bench.support import installation, manifests
from bench.support.installation import Installation
from bench.support.processes import START_SECONDS
from coordinator.settings import Settings
from crds.api_resources import PODS, SERVICES, TORCHJOBS
from crds.keys import JobKey
from crds.torchjob import demand, torchjob
from kube.api import Manifest
from queues.dispatch.redis_work import RedisWork
from queues.storage import stats as queue_stats
from queues.tasks import Offer
from queues.values import Reservation

_ROUNDS = 3
"""The number of further reconciles of each job."""
_CREATES = 4
"""The number of jobs that are created concurrently, before the measurement."""
_SETTINGS = Settings()
PART = "bench/part"
"""The label that says in which part of the run a pod was created."""
_SENT = (
    *("containers", "volumes", "restartPolicy", "schedulerName", "hostname", "subdomain"),
    *("clusterIP", "ports", "selector", "publishNotReadyAddresses"),
)
"""The fields of the spec of a pod or service that a client sends; the server adds others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The size of the measurement."""

    sizes: tuple[int, ...] = (1, 8, 64, 1_000)
    """The number of pods of a job, one part of the measurement each."""
    pods: int = 256
    """The pods of all jobs of one size together; there is at least one job."""
    workers: int = 2
    real: bool = False
    """Whether the API server is kube-apiserver on etcd instead of the embedded one."""
    seconds: float = 300.0
    """The time limit of each part."""


def run(options: Options) -> Figures:
    """Measure each size of jobs in turn. Raises BenchError if a part does not end in time."""
    with installation.running(real=options.real, workers=options.workers, coordinator=False) as torchq:
        comparison = Comparison(torchq, options)
        comparison.prepare()
        figures = {f"pods_{size}": comparison.measure(size) for size in options.sizes}
    return {"server": torchq.server.name, "by_size": figures}


@dataclass(slots=True)
class Comparison:
    """The measurements of all sizes, one after the other."""

    torchq: Installation
    options: Options
    keys: dict[int, list[JobKey]] = field(default_factory=dict)
    _work: RedisWork = field(init=False)
    _parts: int = 0

    def __post_init__(self) -> None:
        self._work = RedisWork(self.torchq.redis)

    def prepare(self) -> None:
        """Create all jobs and their reservations, and reconcile one job of two pods as a model."""
        self._start_callers()
        counts = {2: 1, **{size: max(1, self.options.pods // size) for size in self.options.sizes}}
        made = {size: self._create(size, count) for size, count in counts.items()}
        self.keys = {size: [torchjob.parse(job).key for job in jobs] for size, jobs in made.items()}
        jobs = [manifest for manifests in made.values() for manifest in manifests]
        self.torchq.store().rebuild(1, [reservation(manifest, number) for number, manifest in enumerate(jobs, 1)], [])
        workers = self.options.workers
        self.torchq.bench.wait(lambda: len(queue_stats.read(self.torchq.redis).workers) == workers, "the workers")
        self._reconcile(self.keys[2])

    def measure(self, size: int) -> Figures:
        """Measure the first and the further reconciles of jobs of one size, each by workers and by API calls alone."""
        keys = self.keys[size]
        plan = self._calls(size, len(keys))
        bare_first = self._bare(plan)
        first = self._reconcile(keys)
        self._check_pods(size, keys)
        again = self._reconcile(keys, rounds=_ROUNDS)
        gets = [[calls[0], calls[1], None, [], []] for calls in plan]
        bare_again = self._bare(gets * _ROUNDS)
        return {
            "jobs": len(keys),
            "first_per_s": round(first, 1),
            "bare_first_per_s": round(bare_first, 1),
            "share_first": round(first / bare_first, 3),
            "again_per_s": round(again, 1),
            "bare_again_per_s": round(bare_again, 1),
            "share_again": round(again / bare_again, 3),
        }

    def _create(self, size: int, jobs: int, name: str = "job") -> list[Manifest]:
        def create(number: int) -> Manifest:
            body = job(f"{name}-{size}-{number}", self.torchq.namespace, f"size-{size}", max(size, 2))
            if size == 1:
                del body["spec"]["torchTaskSpecs"]["Worker"]
            return self.torchq.admin.create(TORCHJOBS, body, self.torchq.namespace)

        with ThreadPoolExecutor(_CREATES) as creators:
            return list(creators.map(create, range(jobs)))

    def _reconcile(self, keys: Sequence[JobKey], rounds: int = 1) -> float:
        """Reconcile these keys until they are idle. Return the runs per second."""
        started = time.perf_counter()
        for _ in range(rounds):
            self._work.offer(Offer(key=key, tenant=self.torchq.namespace) for key in keys)
            self._until_idle()
        return rounds * len(keys) / (time.perf_counter() - started)

    def _until_idle(self) -> None:
        deadline = time.monotonic() + self.options.seconds
        while True:
            if not self._work.dispatch():
                stats = queue_stats.read(self.torchq.redis)
                if not (stats.ready or stats.leased):
                    return
                time.sleep(_SETTINGS.dispatch_seconds)
            if time.monotonic() > deadline:
                raise BenchError(f"no end in {self.options.seconds:.0f} s{self.torchq.bench.logs()}")

    def _check_pods(self, size: int, keys: Sequence[JobKey]) -> None:
        """Raise BenchError unless every pod exists."""
        selector = f"{PART}=size-{size}"
        existing = self.torchq.admin.list(PODS, self.torchq.namespace, label_selector=selector).items
        if len(existing) != size * len(keys):
            raise BenchError(f"{len(existing)} pods of {size * len(keys)}{self.torchq.bench.logs()}")

    def _calls(self, size: int, jobs: int) -> list[list[object]]:
        """Return the API calls of the workers for jobs of other names. The model job has the form of admissions and
        pods."""
        admin, namespace = self.torchq.admin, self.torchq.namespace
        model = admin.get(TORCHJOBS, self.keys[2][0].name, namespace)
        pod = bare(admin.get(PODS, f"{self.keys[2][0].name}-worker-0", namespace))
        service = bare(admin.get(SERVICES, f"{self.keys[2][0].name}-master-0", namespace), "Service")
        plan: list[list[object]] = []
        for manifest in self._create(size, jobs, "bare"):
            name = manifest["metadata"]["name"]
            bodies = [with_name(pod, f"{name}-{index}") for index in range(size)]
            services = [with_name(service, name)] if size > 1 else []
            plan.append([namespace, name, model["status"], services, bodies])
        return plan

    def _start_callers(self) -> None:
        kubeconfig, folder = self.torchq.server.accounts[1], str(self.torchq.bench.folder)
        for number in range(self.options.workers):
            numbers = (number, self.options.workers, _SETTINGS.threads, _SETTINGS.parallel_writes)
            self.torchq.bench.start_python(
                f"raw-{number}", "bench.support.raw_caller", kubeconfig, folder, *map(str, numbers), stage=2
            )

    def _bare(self, plan: Iterable[list[object]]) -> float:
        """Make the calls of reconciles by the number of processes and threads that the workers have. Return the calls
        per second.
        """
        self._parts += 1
        lines = [orjson.dumps(calls) for calls in plan]
        self._write("plan", b"\n".join(lines))
        self._wait_for("ready", START_SECONDS)
        self._write("gate", b"")
        spans = [[float(time_text) for time_text in times] for times in self._wait_for("done", self.options.seconds)]
        return len(lines) / (max(end for _, end in spans) - min(begin for begin, _ in spans))

    def _write(self, kind: str, content: bytes) -> None:
        """Write a file for the callers. The file appears with its whole content, because the callers wait for it."""
        draft = self.torchq.bench.folder / "draft"
        draft.write_bytes(content)
        draft.rename(self.torchq.bench.folder / f"{kind}-{self._parts}")

    def _wait_for(self, event: str, seconds: float) -> list[list[str]]:
        """Wait until all callers have logged an event of this part. Return the values in each caller's line."""
        logs = [self.torchq.bench.folder / f"raw-{number}.log" for number in range(self.options.workers)]
        line = re.compile(rf"^{event} {self._parts}\b(.*)\n", re.MULTILINE)

        def matches() -> list[str]:
            return [rest for log in logs if log.exists() for rest in line.findall(log.read_text())]

        self.torchq.bench.wait(lambda: len(matches()) == len(logs), f"the bare callers to be {event}", seconds)
        return [rest.split() for rest in matches()]


def job(name: str, queue: str, part: str, pods: int) -> Manifest:
    """Return a job whose pods are all created at once and that no scheduler binds."""
    labels = {PART: part}
    tasks = {"Master": manifests.task(labels), "Worker": manifests.task(labels, numTasks=pods - 1, dependsOn=[])}
    return manifests.job(name, queue, tasks, schedulingPolicy={"gangScheduler": "none"})


def bare(body: Manifest, kind: str = "Pod") -> Manifest:
    """Return a pod or service as a worker sends it, but without a job, so that torchq neither counts nor deletes it."""
    metadata = {name: body["metadata"][name] for name in ("annotations",) if name in body["metadata"]}
    spec = {name: body["spec"][name] for name in _SENT if name in body["spec"]}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": spec}


def with_name(body: Manifest, name: str) -> Manifest:
    """Return the same object with another name."""
    return {**body, "metadata": {**body["metadata"], "name": name}}


def reservation(manifest: Manifest, pick: int) -> Reservation:
    """Return the reservation that a pick would make."""
    job = torchjob.parse(manifest)
    return Reservation(key=job.key, queue=job.queue, attempt=1, epoch=1, charge=demand.job_charge(job.spec), pick=pick)
