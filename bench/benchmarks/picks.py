"""Measures durable picks per second: the next jobs are decided and written into a real Redis.

One rule: the benchmark runs the coordinator's own cycles, `snapshot -> pick -> commit`, with its own settings, one
after the other.
"""

import functools
import itertools
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from bench.errors import BenchError
from bench.options import option
from bench.report import Figures
from bench.support import redis_server
from bench.support.arena import GPU, START
from bench.support.processes import room
from coordinator import settings
from crds.keys import JobKey
from crds.resources import amounts
from crds.resources.amounts import Amounts
from kube.process import gc_tuning
from queues.pick_cycle import PickCycle
from queues.picking import read_depth
from queues.placement.gangs import EVERY, Gang, Members, Shape
from queues.placement.node_room import NodeRoom
from queues.placement.places import Places
from queues.redis import connection
from queues.storage.redis_store import RedisStore
from queues.store import PendingCommit, QueueStore
from queues.values import Batch, CommitResult, Entry, QueueSpec, Reservation, Snapshot

COHORT = 6
"""The number of queues that lend to each other."""
BESIDE = 1_000
"""The number of jobs that are put, and of jobs that are released, per second of picking."""
_JOB: Amounts = {"cpu": 4_000, GPU: 1}
_GANG = Gang((Members(Shape(tuple(sorted({**_JOB, amounts.PODS: 1}.items()))), 1),))
_QUOTA: Amounts = {"cpu": 10_000_000, GPU: 10_000}
_BORROWING: Amounts = {"cpu": 400_000, GPU: 100}
_DEFAULTS = settings.resolve({}, {}, None).settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of the benchmark."""

    queues: int = option(1_000)
    jobs: int = option(100_000)
    hard: bool = option(False, "with quotas, cohorts, jobs that do not fit, and jobs that come and go")
    """Every queue limits two resources, and six queues form a cohort. The first job of each tenth queue does not fit.
    """
    nodes: int = option(0, "of how many nodes the pool is; 0: it has no limit", least=0)
    different: bool = option(False, "each node has amounts of its own; else all are alike")
    sums: bool = option(False, "of the nodes only the sums count, as in a pool that is set as amounts")
    batch: int = option(_DEFAULTS.batch, "most picks per commit")
    seconds: float = option(10.0, least=0.1)
    """The duration of the picking, if there are enough jobs."""


SHORT = Options(queues=100, jobs=5_000, seconds=2.0)


@dataclass(slots=True)
class Timed:
    """A store that measures the time of its calls."""

    store: QueueStore
    snapshots: float = 0.0
    commits: float = 0.0
    longest: float = 0.0
    """The time of the longest commit, during which Redis may have served no other client."""
    answered: float = 0.0
    """The time at which the last commit was answered; the next one had to wait until then."""

    def snapshot(
        self, heads: int, since: int | None = None, more: Collection[str] = (), known: Mapping[str, int] | None = None
    ) -> Snapshot:
        begun = time.perf_counter()
        snapshot = self.store.snapshot(heads, since, more, known)
        self.snapshots += time.perf_counter() - begun
        return snapshot

    def pending_commit(self, batch: Batch) -> "TimedCommit":
        return TimedCommit(self, self.store.pending_commit(batch))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


@dataclass(slots=True)
class TimedCommit:
    """One commit of a timed store. Only the wait for its outcome is measured; the coordinator works in the meantime."""

    timed: Timed
    commit: PendingCommit
    begun: float = 0.0

    def begin(self, change: int) -> None:
        self.begun = time.perf_counter()
        self.commit.begin(change)

    def outcome(self) -> CommitResult:
        begun = time.perf_counter()
        committed = self.commit.outcome()
        now = time.perf_counter()
        self.timed.commits += now - begun
        self.timed.longest = max(self.timed.longest, now - max(self.begun, self.timed.answered))
        self.timed.answered = now
        return committed

    def __getattr__(self, name: str) -> Any:
        return getattr(self.commit, name)


@dataclass(slots=True)
class Beside:
    """The jobs that arrive and the jobs that end during the picking."""

    store: QueueStore
    options: Options
    running: list[JobKey] = field(default_factory=list)
    done: int = 0

    def catch_up(self, seconds: float) -> None:
        """Put and release the jobs that are due after a number of seconds."""
        due = int(seconds * BESIDE) - self.done
        if not due or not self.options.hard:
            return
        arrived = itertools.islice(entries(self.options), self.done % self.options.jobs, None)
        later = range(self.done, self.done + due)
        self.store.put(_copy(entry, number) for entry, number in zip(arrived, later, strict=False))
        ended, self.running = self.running[:due], self.running[due:]
        self.store.remove(ended)
        self.done += due


def run(options: Options) -> Figures:
    """Fill a Redis with waiting jobs, then pick from them. Raises LocalError without a Redis server."""
    with room() as bench:
        url = redis_server.start(bench)
        client = connection.connect(url, client_name="torchq-bench")
        store = RedisStore(client)
        store.rebuild(1, reservations(options), [])
        room_of_nodes = nodes(options)
        store.configure(list(specs(options)), capacity(room_of_nodes) if options.nodes else None)
        waiting = list(entries(options))
        started = time.perf_counter()
        store.put(waiting)
        put = len(waiting) / (time.perf_counter() - started)
        del waiting  # a coordinator does not have them in memory either
        gc_tuning.reduce_collections()
        gc_tuning.freeze_objects()  # as the coordinator does after a rebuild
        worked = Worked(client)
        places = Places(room_of_nodes, room_of_nodes.copy(), gang_of) if options.nodes and not options.sums else None
        if places is not None:
            places.names_nodes = True  # as the coordinator's by default
        figures = pick(store, options, places)
        figures |= worked.per("pick", figures["picked"])
        machine = redis_server.operations_per_second(bench.folder)
    return {"picks_per_s": figures.pop("picks_per_s"), "put_per_s": put, **machine, **figures}


class Worked:
    """The CPU time of both processes. For Redis, only the thread that runs scripts is measured."""

    def __init__(self, client: connection.Connection) -> None:
        self._client = client
        self._python, self._redis = time.process_time(), self._of_redis()

    def per(self, unit: str, count: float) -> Figures:
        """Return the CPU microseconds of each process since the beginning, per unit."""
        python, redis = time.process_time() - self._python, self._of_redis() - self._redis
        return {f"python_cpu_us_per_{unit}": 1e6 * python / count, f"redis_cpu_us_per_{unit}": 1e6 * redis / count}

    def _of_redis(self) -> float:
        with connection.translate_errors(self._client):
            usage = self._client.info("cpu")
        return float(usage["used_cpu_user_main_thread"] + usage["used_cpu_sys_main_thread"])


def pick(store: QueueStore, options: Options, places: Places | None = None) -> Figures:
    """Run pick cycles until the time is over or no job can be picked."""
    timed, beside, now = Timed(store), Beside(store, options), time.perf_counter
    rounds = PickCycle(timed, _DEFAULTS.rules, places=lambda: places)
    most = read_depth.per_queue(options.queues, _DEFAULTS.heads)
    seconds, picked, refused = [], 0, 0
    begun = now()
    while (started := now()) - begun < options.seconds:
        beside.catch_up(started - begun)
        result = rounds.run(START, options.batch, most)
        if not result.picked and not result.refused:
            break
        seconds.append(now() - started)
        if options.hard and len(beside.running) < 2 * BESIDE:
            beside.running += [reservation.key for reservation in result.reservations]
        picked, refused = picked + result.picked, refused + bool(result.refused)
    total = now() - begun
    if not picked:
        raise BenchError("nothing was picked")
    return {
        "picks_per_s": picked / total,
        "picked": picked,
        "picks_per_round": picked / len(seconds),
        "refused_rounds": refused,
        "first_round_s": seconds[0],
        "put_and_released_beside": beside.done,
        "snapshot_us_per_pick": 1e6 * timed.snapshots / picked,
        "commit_us_per_pick": 1e6 * timed.commits / picked,
        "rest_us_per_pick": 1e6 * (total - timed.snapshots - timed.commits) / picked,
        "longest_commit_ms": 1e3 * timed.longest,
    }


def _copy(entry: Entry, number: int) -> Entry:
    """Return a new job with the demand of an earlier one."""
    key = replace(entry.key, name=f"late-{number:07}", uid=f"{entry.key.uid[:-7]}{number:07}")
    return replace(entry, key=key, submitted=entry.submitted + 1e6, demand={amounts.JOBS: 1, **_JOB})


def nodes(options: Options) -> NodeRoom:
    """Return the nodes. Together they have room for all jobs, twice over."""
    found = NodeRoom(lambda _: EVERY)
    for number in range(options.nodes):
        most = 2 * options.jobs // options.nodes + 1
        jobs = 1 + most // 2 + number % most if options.different else most
        demand = {**amounts.scale(_JOB, jobs), amounts.PODS: 2 * most}
        demand["cpu"] += number if options.different else 0
        found.set_capacity(found.index(f"node-{number:05}"), demand)
    return found


def capacity(nodes: NodeRoom) -> Amounts:
    """Return the sum of what is free on all nodes."""
    return functools.reduce(amounts.add, (nodes.free(node) for node in range(len(nodes.names))), {})


def gang_of(_key: str, _kind: str, demand: Amounts) -> Gang | None:
    """Return the one pod of a job; None for a job that fits no quota."""
    return _GANG if demand[GPU] == _JOB[GPU] else None


def specs(options: Options) -> Iterator[QueueSpec]:
    """Yield the tenant queues, with weights 1 to 5."""
    for number in range(options.queues):
        spec = QueueSpec(name=_queue(number), weight=1 + number % 5)
        cohort = f"cohort-{number // COHORT:05}"
        yield replace(spec, quota=_QUOTA, borrowing=_BORROWING, cohort=cohort) if options.hard else spec


def entries(options: Options) -> Iterator[Entry]:
    """Yield the waiting jobs, one per second, for each queue in turn."""
    for number in range(options.jobs):
        queue = number % options.queues
        first = number < options.queues
        demand = amounts.add(_QUOTA, _BORROWING) if first and _is_blocked(queue, options) else _JOB
        yield Entry(
            key=_key(queue, f"job-{number:07}"),
            queue=_queue(queue),
            submitted=START + number,
            demand={amounts.JOBS: 1, **demand},
        )


def reservations(options: Options) -> Iterator[Reservation]:
    """Yield one running job for each queue whose first waiting job needs the whole quota, so that it does not fit."""
    for number in range(options.queues):
        if _is_blocked(number, options):
            charge = {amounts.JOBS: 1, "cpu": 1_000, GPU: 1}
            yield Reservation(key=_key(number, "runs"), queue=_queue(number), attempt=1, epoch=1, charge=charge, pick=1)


def _is_blocked(queue: int, options: Options) -> bool:
    return options.hard and queue % 10 == 0


def _queue(number: int) -> str:
    return f"team-{number:05}"


def _key(queue: int, name: str) -> JobKey:
    return JobKey(_queue(queue), name, f"00000000-0000-4000-8000-{queue:05}{name[-7:]:0>7}")
