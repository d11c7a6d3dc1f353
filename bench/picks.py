"""Durable picks per second: who goes next, decided and written down in a real Redis.

One rule: the coordinator's own cycle, `snapshot -> choose -> commit`, with its own settings, and nothing beside it.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from bench import redis_server
from bench.errors import BenchError
from bench.processes import room
from bench.report import Figures
from coordinator import settings
from crds import amounts
from crds.amounts import Amounts
from crds.keys import JobKey
from queues import choose, connection
from queues.redis_store import RedisStore
from queues.store import QueueStore
from queues.values import Entry, QueueSpec, Reservation

GPU = "nvidia.com/gpu"
START = 1_700_000_000.0
_QUOTA: Amounts = {"cpu": 10_000_000, GPU: 10_000}
_DEFAULTS = settings.resolve({}, {}, None).settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What to measure."""

    queues: int = 1_000
    jobs: int = 100_000
    mix: Literal["plain", "quotas"] = "plain"
    """quotas: two resources limited in every queue, and each tenth queue's next job does not fit."""
    heads: int = _DEFAULTS.heads
    batch: int = _DEFAULTS.batch
    seconds: float = 10.0
    """How long picks are made, if there are enough jobs."""


SHORT = Options(queues=100, jobs=5_000, seconds=2.0)


@dataclass(slots=True)
class Spent:
    """Seconds of each part of the cycle."""

    snapshot: float = 0.0
    choose: float = 0.0
    commit: float = 0.0
    picks: list[int] = field(default_factory=list)
    """Of each cycle."""


def run(options: Options) -> Figures:
    """Fill a Redis with waiting jobs, then pick. BenchError without a redis-server."""
    with room() as bench:
        store = RedisStore(connection.connect(redis_server.start(bench), client_name="torchq-bench"))
        store.rebuild(1, held(options), [])
        store.configure(list(specs(options)), None)
        waiting = list(entries(options))
        started = time.perf_counter()
        store.put(waiting)
        put = time.perf_counter() - started
        spent = pick(store, options)
        machine = redis_server.operations_per_second(bench.folder)
    picked = sum(spent.picks)
    if not picked:
        raise BenchError("nothing was picked")
    total = spent.snapshot + spent.choose + spent.commit
    return {
        "picks_per_s": picked / total,
        "put_per_s": len(waiting) / put,
        **machine,
        "picked": picked,
        "picks_per_cycle": picked / len(spent.picks),
        "snapshot_us_per_pick": 1e6 * spent.snapshot / picked,
        "choose_us_per_pick": 1e6 * spent.choose / picked,
        "commit_us_per_pick": 1e6 * spent.commit / picked,
    }


def pick(store: QueueStore, options: Options) -> Spent:
    """Cycle until the time is over or nobody can go."""
    spent = Spent()
    now = time.perf_counter
    deadline = now() + options.seconds
    while (begun := now()) < deadline:
        snapshot = store.snapshot(options.heads)
        seen = now()
        batch = choose.choose(snapshot, START, options.batch, amounts.JOBS)
        chosen = now()
        if not batch.picks:
            break
        spent.picks.append(len(store.commit(batch).reservations))
        spent.snapshot += seen - begun
        spent.choose += chosen - seen
        spent.commit += now() - chosen
    return spent


def specs(options: Options) -> Iterator[QueueSpec]:
    """The tenant queues, weights 1 to 5."""
    for number in range(options.queues):
        quota = _QUOTA if options.mix == "quotas" else amounts.NOTHING
        yield QueueSpec(name=_queue(number), weight=1 + number % 5, quota=quota)


def entries(options: Options) -> Iterator[Entry]:
    """The waiting jobs, round and round over the queues, one per second."""
    for number in range(options.jobs):
        queue = number % options.queues
        first = number < options.queues
        demand = _QUOTA if first and _blocked(queue, options) else {"cpu": 4_000, GPU: 1}
        yield Entry(
            key=_key(queue, f"job-{number:07}"),
            queue=_queue(queue),
            submitted=START + number,
            demand={amounts.JOBS: 1, **demand},
        )


def held(options: Options) -> Iterator[Reservation]:
    """A job that runs in each queue whose next one asks for the whole quota, so that it does not fit now."""
    for number in range(options.queues):
        if _blocked(number, options):
            charge = {amounts.JOBS: 1, "cpu": 1_000, GPU: 1}
            yield Reservation(key=_key(number, "runs"), queue=_queue(number), attempt=1, epoch=1, charge=charge, pick=1)


def _blocked(queue: int, options: Options) -> bool:
    return options.mix == "quotas" and queue % 10 == 0


def _queue(number: int) -> str:
    return f"team-{number:05}"


def _key(queue: int, name: str) -> JobKey:
    return JobKey(_queue(queue), name, f"00000000-0000-4000-8000-{queue:05}{name[-7:]:0>7}")
