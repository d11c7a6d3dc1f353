"""Whole reconciles per second (observe, plan, apply) by real worker processes, beside the same calls made bare.

One rule: no coordinator takes part: jobs are offered and handed out as it would, and each figure stands beside that of
the bare calls of the same run, made by as many processes.

    first   a job that was just picked: its admission is written, its service and its pods are made
    again   the same job once more: one GET, and nothing to do
"""

import re
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import orjson

from bench.benchmarks import pods
from bench.errors import BenchError
from bench.report import Figures
from bench.support import installation, stack
from bench.support.installation import Installation, Wanted
from bench.support.processes import START_SECONDS, Bench, room
from coordinator.settings import Settings
from crds.api_resources import PODS, SERVICES, TORCHJOBS
from crds.keys import JobKey
from crds.torchjob import demand, torchjob
from kube.api import Manifest
from queues.dispatch.redis_work import RedisWork
from queues.storage import stats
from queues.values import Offer, Reservation

_ROUNDS = 3
"""How often each job is looked at again."""
_CREATES = 4
"""Jobs created at a time, before anything is measured."""
_SETTINGS = Settings()


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What to measure."""

    sizes: tuple[int, ...] = (1, 8, 64, 1_000)
    """Pods of a job."""
    pods: int = 256
    """Of all jobs of a size together; one job at least."""
    workers: int = 2
    real: bool = False
    """kube-apiserver on etcd instead of the embedded API server."""
    seconds: float = 300.0
    """When to give up, in each part."""


def run(options: Options) -> Figures:
    """Each size of jobs in turn. BenchError if one does not come to its end."""
    wanted = Wanted(real=options.real, workers=options.workers, coordinator=False)
    with room(stack.STOP_SECONDS) as bench, installation.running(bench, wanted) as torchq:
        course = Course(bench, torchq, options)
        course.prepare()
        found = {f"pods_{size}": course.measure(size) for size in options.sizes}
    return {"server": torchq.server.name, "by_size": found}


@dataclass(slots=True)
class Course:
    """The sizes, one after the other."""

    bench: Bench
    torchq: Installation
    options: Options
    keys: dict[int, list[JobKey]] = field(default_factory=dict)
    _work: RedisWork = field(init=False)
    _parts: int = 0

    def __post_init__(self) -> None:
        self._work = RedisWork(self.torchq.redis)

    def prepare(self) -> None:
        """All jobs are there, and picked; one of two pods has gone all the way."""
        self._start_callers()
        made = {size: self._create(size, self._jobs(size)) for size in (2, *self.options.sizes)}
        self.keys = {size: [_key(each) for each in manifests] for size, manifests in made.items()}
        jobs = [each for manifests in made.values() for each in manifests]
        self.torchq.store().rebuild(1, [reservation(each, number) for number, each in enumerate(jobs, 1)], [])
        workers = self.options.workers
        self.bench.wait(lambda: len(stats.read(self.torchq.redis).workers) == workers, "the workers")
        self._reconcile(self.keys[2])

    def measure(self, size: int) -> Figures:
        """One size: first and again, each by workers and bare."""
        keys = self.keys[size]
        plan = self._calls(size, len(keys))
        bare_first = self._bare(plan)
        first = self._reconcile(keys)
        self._complete(size, keys)
        again = self._reconcile(keys, rounds=_ROUNDS)
        look = [[each[0], each[1], None, [], []] for each in plan]
        bare_again = self._bare(look * _ROUNDS)
        return {
            "jobs": len(keys),
            "first_per_s": round(first, 1),
            "bare_first_per_s": round(bare_first, 1),
            "share_first": round(first / bare_first, 3),
            "again_per_s": round(again, 1),
            "bare_again_per_s": round(bare_again, 1),
            "share_again": round(again / bare_again, 3),
        }

    def _jobs(self, size: int) -> int:
        return 1 if size == 2 else max(1, self.options.pods // size)

    def _create(self, size: int, jobs: int, name: str = "job") -> list[Manifest]:
        def create(number: int) -> Manifest:
            body = pods.job(f"{name}-{size}-{number}", self.torchq.namespace, f"size-{size}", max(size, 2))
            if size == 1:
                del body["spec"]["torchTaskSpecs"]["Worker"]
            return self.torchq.admin.create(TORCHJOBS, body, self.torchq.namespace)

        with ThreadPoolExecutor(_CREATES) as creators:
            return list(creators.map(create, range(jobs)))

    def _reconcile(self, keys: Sequence[JobKey], rounds: int = 1) -> float:
        """Runs of these keys per second, until all of them have nothing to do any more."""
        began = time.perf_counter()
        for _ in range(rounds):
            self._work.offer(Offer(key=key, tenant=self.torchq.namespace) for key in keys)
            self._until_idle()
        return rounds * len(keys) / (time.perf_counter() - began)

    def _until_idle(self) -> None:
        deadline = time.monotonic() + self.options.seconds
        while True:
            if not self._work.dispatch():
                found = stats.read(self.torchq.redis)
                if not (found.ready or found.leased):
                    return
                time.sleep(_SETTINGS.dispatch_seconds)
            if time.monotonic() > deadline:
                raise BenchError(f"no end in {self.options.seconds:.0f} s{self.bench.logs()}")

    def _complete(self, size: int, keys: Sequence[JobKey]) -> None:
        """Every pod that was to be made is there."""
        selector = f"{pods.PART}=size-{size}"
        there = self.torchq.admin.list(PODS, self.torchq.namespace, label_selector=selector).items
        if len(there) != size * len(keys):
            raise BenchError(f"{len(there)} pods of {size * len(keys)}{self.bench.logs()}")

    def _calls(self, size: int, jobs: int) -> list[list[object]]:
        """What the workers will ask for, for jobs of other names: the warm one says how admissions and pods look."""
        admin, namespace = self.torchq.admin, self.torchq.namespace
        warm = admin.get(TORCHJOBS, self.keys[2][0].name, namespace)
        pod = pods.bare(admin.get(PODS, f"{self.keys[2][0].name}-worker-0", namespace))
        service = pods.bare(admin.get(SERVICES, f"{self.keys[2][0].name}-master-0", namespace), "Service")
        found: list[list[object]] = []
        for made in self._create(size, jobs, "bare"):
            name = made["metadata"]["name"]
            bodies = [pods.named(pod, f"{name}-{index}") for index in range(size)]
            services = [pods.named(service, name)] if size > 1 else []
            found.append([namespace, name, warm["status"], services, bodies])
        return found

    def _start_callers(self) -> None:
        kubeconfig, folder = self.torchq.server.accounts[1], str(self.bench.folder)
        for number in range(self.options.workers):
            numbers = (number, self.options.workers, _SETTINGS.threads, _SETTINGS.parallel_writes)
            self.bench.start_python(
                f"raw-{number}", "bench.support.raw_caller", kubeconfig, folder, *map(str, numbers), stage=2
            )

    def _bare(self, plan: Iterable[list[object]]) -> float:
        """The same calls by as many processes, with as many threads."""
        self._parts += 1
        lines = [orjson.dumps(each) for each in plan]
        self._put("plan", b"\n".join(lines))
        self._said("ready", START_SECONDS)
        self._put("gate", b"")
        spans = [[float(each) for each in said] for said in self._said("done", self.options.seconds)]
        return len(lines) / (max(end for _, end in spans) - min(begin for begin, _ in spans))

    def _put(self, kind: str, content: bytes) -> None:
        """Whole at once: somebody waits for it."""
        draft = self.bench.folder / "draft"
        draft.write_bytes(content)
        draft.rename(self.bench.folder / f"{kind}-{self._parts}")

    def _said(self, word: str, seconds: float) -> list[list[str]]:
        """What each of the bare callers says after this word about this part, once all have."""
        logs = [self.bench.folder / f"raw-{number}.log" for number in range(self.options.workers)]
        line = re.compile(rf"^{word} {self._parts}\b(.*)\n", re.MULTILINE)

        def found() -> list[str]:
            return [rest for log in logs if log.exists() for rest in line.findall(log.read_text())]

        self.bench.wait(lambda: len(found()) == len(logs), f"the bare callers to be {word}", seconds)
        return [rest.split() for rest in found()]


def reservation(manifest: Manifest, pick: int) -> Reservation:
    """As a pick would leave it."""
    job = torchjob.parse(manifest)
    return Reservation(key=job.key, queue=job.queue, attempt=1, epoch=1, charge=demand.job_charge(job.spec), pick=pick)


def _key(manifest: Manifest) -> JobKey:
    return torchjob.parse(manifest).key
