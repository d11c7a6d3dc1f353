"""The JSON documents that describe queues and jobs, made from a snapshot of the store.

One rule: names are written as in Kubernetes. A document is the same whether the coordinator made it, or a command that
read the store itself.
"""

from collections.abc import Callable, Collection, Iterable, Mapping

from coordinator.query import figures
from coordinator.query.questions import Document
from crds.api_resources import TENANT_QUEUES
from crds.keys import JobKey
from crds.resources.amounts import JOBS, OTHERS, Amounts
from queues import order
from queues.picking.explain import ScarceRoom
from queues.picking.fair_share import lag
from queues.picking.prices import Prices
from queues.registrations import describe_refused
from queues.storage.stats import QueueStats
from queues.values import Pick, QueuePosition, QueueSnapshot, Reservation, Snapshot

OPEN, HOLD = "None", "Hold"
MOST_HOLDERS = 3
"""The most jobs that an answer names as holders of room."""


def queues(
    snapshot: Snapshot,
    now: float,
    cost: str,
    policies: Mapping[str, str],
    idle_usage: Mapping[str, Amounts],
    is_deleted: Callable[[str], bool],
) -> list[Document]:
    """Return every queue as a TenantQueue whose status has the current figures.

    `cost` is the price of a pick (`queues.rules`). `policies` are the stop policies of queues. For a queue without a
    policy, the policy follows from whether the queue is open. `idle_usage` is what idle growth uses of each queue, and
    `is_deleted` returns whether an admin has deleted a queue while jobs hold its room.
    """
    prices = Prices(cost, snapshot.pool, [view.spec for view in snapshot.queues])
    costs = {view.spec.name: prices.used(view.usage) for view in snapshot.queues}
    busy_weight = sum(view.spec.weight for view in snapshot.queues if _is_busy(view))
    total = sum(costs.values())
    return [
        {
            "apiVersion": TENANT_QUEUES.api_version,
            "kind": TENANT_QUEUES.kind,
            "metadata": {"name": view.spec.name},
            "spec": _spec(view, policies.get(view.spec.name)),
            "status": {
                **_status(view, now),
                "share": figures.percent(costs[view.spec.name], total),
                "target": figures.percent(view.spec.weight if _is_busy(view) else 0, busy_weight),
                # The cost by which the queue is behind its share; a negative cost if the queue is ahead of its share;
                # None before the first pick.
                "lag": round(lag(view.account, snapshot.clock), 3) if snapshot.clock.weights else None,
                **({"idleUsage": figures.format_amounts(idle)} if (idle := idle_usage.get(view.spec.name)) else {}),
                **({"deleted": True} if is_deleted(view.spec.name) else {}),
            },
        }
        for view in snapshot.queues
    ]


def _is_busy(view: QueueSnapshot) -> bool:
    return bool(view.waiting or view.usage.get(JOBS))


def _spec(view: QueueSnapshot, policy: str | None) -> Document:
    spec = view.spec
    document: Document = {
        "weight": spec.weight,
        "stopPolicy": policy or (OPEN if spec.open else HOLD),
        "ordering": "StrictFIFO" if spec.strict else "BestEffortFIFO",
        "agingSeconds": spec.aging_seconds,
    }
    if spec.quota:
        document["quota"] = figures.format_amounts(spec.quota)
    if spec.cohort:
        document["cohort"] = spec.cohort
    if spec.borrowing:
        document["borrowingLimit"] = figures.format_amounts(spec.borrowing)
    return document


def _status(view: QueueSnapshot, now: float) -> Document:
    oldest = min((waiting.entry.submitted for waiting in view.heads), default=None)
    first = view.heads[0].entry if view.heads else None
    return {
        "pending": view.waiting,
        "admitted": view.usage.get(JOBS, 0),
        "usage": figures.format_amounts({name: amount for name, amount in view.usage.items() if amount}),
        "oldestWaitSeconds": None if oldest is None else round(max(0.0, now - oldest), 3),
        "first": None if first is None else job_name(first.key),
        "firstScore": None if first is None else order.score(first, view.spec.aging_seconds),
    }


def next_picks(picks: Iterable[Pick], now: float) -> list[Document]:
    """Return picks as `torchq next` shows them, in the order in which they are made.

    `workers` is the number of workers that a pick gives; 0 for all workers of the job. If `growth` is true, these
    workers are added to those that the job has.
    """
    return [
        {
            "pick": number,
            "queue": pick.waiting.entry.queue,
            **_named(pick.waiting.entry.key),
            "cost": pick.cost,
            "demand": figures.format_amounts(pick.charge),
            "workers": pick.waiting.entry.size + pick.units,
            "growth": pick.waiting.entry.kind == "grow",
            "priority": pick.waiting.entry.priority,
            "waitSeconds": round(max(0.0, now - pick.waiting.entry.submitted), 3),
        }
        for number, pick in enumerate(picks, start=1)
    ]


def places(snapshot: Snapshot, queues: Collection[str]) -> list[Document]:
    """Return the places of the first waiting jobs of some queues, in the order of each queue."""
    return [
        {
            **_named(waiting.entry.key),
            "queue": view.spec.name,
            "position": number,
            "of": view.waiting,
        }
        for view in snapshot.queues
        if view.spec.name in queues
        for number, waiting in enumerate(view.heads, start=1)
        if waiting.entry.kind == "admit"
    ]


def waiting_count(snapshot: Snapshot) -> int:
    """Return how many jobs wait."""
    return sum(view.waiting for view in snapshot.queues)


def stats(numbers: QueueStats) -> Document:
    """Return the numbers of dispatch and of the queues."""
    return {
        "at": numbers.at,
        "epoch": numbers.epoch,
        "picks": numbers.picks,
        "reconciles": numbers.runs,
        "jobs": {"waiting": numbers.waiting, "admitted": numbers.admitted},
        "work": {"ready": numbers.ready, "delayed": numbers.delayed, "leased": numbers.leased},
        "workers": {worker.worker: worker.threads for worker in numbers.workers},
        "workerVersions": {worker.worker: worker.version for worker in numbers.workers},
        "idleWorkers": list(describe_refused(numbers.members, numbers.store)),
        "redis": numbers.problem,
    }


def room(snapshot: Snapshot) -> Document:
    """Return the size of the pool and its usage. A capacity of null means a pool without limits."""
    pool = snapshot.pool and {name: amount for name, amount in snapshot.pool.items() if name != OTHERS}
    return {
        "capacity": None if pool is None else figures.format_amounts(pool),
        "used": figures.format_amounts({name: amount for name, amount in snapshot.pool_usage.items() if amount}),
    }


def waiting(place: QueuePosition, next_pick: int | None, in_order: int | None) -> Document:
    """Return the document of a waiting job. `next_pick` is its number among the next picks, `in_order` its number in a
    pool with room for all jobs.

    Each number is None if the job is not among these picks.
    """
    entry = place.entry
    return {
        "state": "waiting",
        **_named(entry.key),
        "queue": entry.queue,
        "position": place.rank + 1,
        "of": place.waiting,
        "nextPick": next_pick,
        "pickWithRoom": in_order,
        "priority": entry.priority,
        "submitted": entry.submitted,
        "demand": figures.format_amounts(entry.demand),
    }


def holders(room: ScarceRoom, reservations: Iterable[Reservation]) -> Document:
    """Return the jobs that hold most of a room, the largest first, and how many other jobs hold a part of it."""
    held = [(room.sizes(each.queue, each.charge), each) for each in reservations]
    largest = sorted(
        ((sizes, each) for sizes, each in held if sizes),
        key=lambda pair: (*(-size for size in pair[0]), pair[1].epoch, pair[1].pick),
    )
    if not largest:
        return {}
    shown = [
        {
            **_named(each.key),
            "queue": each.queue,
            "charge": figures.format_amounts({name: each.charge[name] for name in room.short if each.charge.get(name)}),
        }
        for _, each in largest[:MOST_HOLDERS]
    ]
    return {"holders": shown, "otherHolders": len(largest) - len(shown)}


def admitted(reservation: Reservation) -> Document:
    """Return the document of a job that holds room; `workers` is 0 if its workers are not counted."""
    return {
        "state": "admitted",
        **_named(reservation.key),
        "queue": reservation.queue,
        "attempt": reservation.attempt,
        "workers": reservation.size,
        "charge": figures.format_amounts(reservation.charge),
    }


def absent(key: JobKey) -> Document:
    """Return the document of a job that is not in the queues."""
    return {"state": "absent", **_named(key)}


def _named(key: JobKey) -> Document:
    return {"job": job_name(key), "uid": key.uid}


def job_name(key: JobKey) -> str:
    """Return the namespace and name of a job, without its uid."""
    return f"{key.namespace}/{key.name}"
