"""How close the admitted cost of each queue stays to its weight, from the first pick on.

One rule: pure. Fixed jobs from a seed, a store in memory, a clock that only the simulation moves.
"""

import heapq
import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from bench.report import Figures
from crds import amounts
from crds.keys import JobKey
from queues import choose
from queues.memory_store import MemoryStore
from queues.values import Entry, QueueSpec, Reservation

GPU = "nvidia.com/gpu"
WEIGHTS: Mapping[str, int] = {"a": 5, "b": 3, "c": 1, "d": 1}
SIZES = (1, 2, 4, 8)
START = 1_700_000_000.0
_HEADS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What to measure."""

    picks: int = 4_000
    pool: int = 0
    """GPUs that all queues share; 0: no limit, so that only the weights decide."""
    batch: int = 128
    """Most picks from one snapshot."""
    seed: int = 1


SHORT = Options(picks=1_000)


def run(options: Options) -> Figures:
    """Admit jobs of 1, 2, 4 and 8 GPUs while every queue always has some waiting."""
    admitted = list(admissions(options))
    return {"picked": len(admitted), **measure(admitted, WEIGHTS)}


def measure(admitted: Iterable[tuple[str, int]], weights: Mapping[str, int]) -> Figures:
    """Of admissions (queue, cost) in order: the largest distance of any queue from its weight's part of what was
    admitted so far, over all prefixes and in units of the largest job; and the shares in the end."""
    whole = sum(weights.values())
    cost = dict.fromkeys(weights, 0)
    total = largest = 0
    worst = 0.0
    for queue, size in admitted:
        cost[queue] += size
        total += size
        largest = max(largest, size)
        worst = max(worst, *(abs(cost[name] - total * weight / whole) for name, weight in weights.items()))
    return {
        "worst_prefix_deviation": worst / largest,
        "target": {name: weight / whole for name, weight in weights.items()},
        "shares": {name: each / total for name, each in cost.items()},
    }


def admissions(options: Options) -> Iterator[tuple[str, int]]:
    """Queue and GPUs of each admitted job, in order. With a pool, jobs run 1 to 100 s and then give their GPUs back."""
    store = MemoryStore(lambda _key, _tenant: None)
    store.rebuild(1, [], jobs(options))
    pool = {GPU: options.pool} if options.pool else None
    store.configure([QueueSpec(name=name, weight=weight) for name, weight in WEIGHTS.items()], pool)
    lengths = random.Random(options.seed + 1)
    running: list[tuple[float, JobKey]] = []
    now, left = START, options.picks
    while left:
        batch = choose.choose(store.snapshot(_HEADS), now, min(left, options.batch), GPU)
        taken = store.commit(batch).reservations
        for each in taken:
            heapq.heappush(running, (now + lengths.uniform(1.0, 100.0), each.key))
        left -= len(taken)
        yield from map(_admission, taken)
        if not taken:
            now, key = heapq.heappop(running)
            store.remove([key])


def jobs(options: Options) -> Iterator[Entry]:
    """Enough of them that no queue runs dry: each could be given all picks but one. Sizes drawn evenly."""
    sizes = random.Random(options.seed)
    for number in range(options.picks):
        for queue in WEIGHTS:
            yield Entry(
                key=JobKey(queue, f"job-{number:06}", f"uid-{queue}-{number}"),
                queue=queue,
                submitted=START + number,
                demand={amounts.JOBS: 1, GPU: sizes.choice(SIZES)},
            )


def _admission(reservation: Reservation) -> tuple[str, int]:
    return reservation.queue, reservation.charge[GPU]
