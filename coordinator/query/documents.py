"""What the queues look like to somebody who asks: documents made from a snapshot.

One rule: pure; a document is JSON with names as in Kubernetes, and the same whether the coordinator made it or a
command that read the queues itself.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from coordinator.query import figures
from crds.api_resources import TENANT_QUEUES
from crds.keys import JobKey
from crds.resources.amounts import JOBS, OTHERS, Amounts
from queues import order
from queues.picking.fair_share import lag
from queues.storage.stats import Vitals
from queues.values import Pick, Place, QueueView, Reservation, Snapshot

Document = dict[str, Any]
OPEN, HOLD = "None", "Hold"


def queues(snapshot: Snapshot, now: float, cost: str, policies: Mapping[str, str] | None = None) -> list[Document]:
    """Every queue as a TenantQueue whose status says how it does now.

    `cost` is what the weights divide; `policies` names stop policies where they are known better than by open and shut.
    """
    held = {view.spec.name: view.usage.get(cost, 0) for view in snapshot.queues}
    busy = sum(view.spec.weight for view in snapshot.queues if _busy(view))
    total = sum(held.values())
    return [
        {
            "apiVersion": TENANT_QUEUES.api_version,
            "kind": TENANT_QUEUES.kind,
            "metadata": {"name": view.spec.name},
            "spec": _spec(view, (policies or {}).get(view.spec.name)),
            "status": {
                **_status(view, now),
                "share": figures.percent(held[view.spec.name], total),
                "target": figures.percent(view.spec.weight if _busy(view) else 0, busy),
                "lag": _lag(view, snapshot),
            },
        }
        for view in snapshot.queues
    ]


def _busy(view: QueueView) -> bool:
    return bool(view.waiting or view.usage.get(JOBS))


def _spec(view: QueueView, policy: str | None) -> Document:
    spec = view.spec
    found: Document = {
        "weight": spec.weight,
        "stopPolicy": policy or (OPEN if spec.open else HOLD),
        "ordering": "StrictFIFO" if spec.strict else "BestEffortFIFO",
        "agingSeconds": spec.aging_seconds,
    }
    if spec.quota:
        found["quota"] = figures.format_amounts(spec.quota)
    if spec.cohort:
        found["cohort"] = spec.cohort
    if spec.borrowing:
        found["borrowingLimit"] = figures.format_amounts(spec.borrowing)
    return found


def _status(view: QueueView, now: float) -> Document:
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


def _lag(view: QueueView, snapshot: Snapshot) -> float | None:
    """How much cost the queue is behind its share (above 0) or ahead of it (below); None before the first pick."""
    return round(lag(view.account, snapshot.clock), 3) if snapshot.clock.weights else None


def upcoming(picks: Iterable[Pick], now: float) -> list[Document]:
    """Picks as `next` shows them, the first first."""
    return [
        {
            "pick": number,
            "queue": pick.waiting.entry.queue,
            "job": job_name(pick.waiting.entry.key),
            "uid": pick.waiting.entry.key.uid,
            "cost": pick.cost,
            "demand": figures.format_amounts(pick.waiting.entry.demand),
            "priority": pick.waiting.entry.priority,
            "waitSeconds": round(max(0.0, now - pick.waiting.entry.submitted), 3),
        }
        for number, pick in enumerate(picks, start=1)
    ]


def total(snapshot: Snapshot) -> int:
    """How many jobs wait."""
    return sum(view.waiting for view in snapshot.queues)


def vitals(found: Vitals) -> Document:
    """How dispatch and queues do, in numbers."""
    return {
        "at": found.at,
        "epoch": found.epoch,
        "picks": found.picks,
        "reconciles": found.runs,
        "jobs": {"waiting": found.waiting, "admitted": found.admitted},
        "work": {"ready": found.ready, "delayed": found.delayed, "leased": found.leased},
        "workers": dict(found.workers),
    }


def room(snapshot: Snapshot) -> Document:
    """The pool and what is taken of it; no capacity: nothing is scarce."""
    return {
        "capacity": None if snapshot.pool is None else figures.format_amounts(_named(snapshot.pool)),
        "used": figures.format_amounts({name: amount for name, amount in snapshot.pool_usage.items() if amount}),
    }


def _named(limit: Amounts) -> Amounts:
    return {name: amount for name, amount in limit.items() if name != OTHERS}


def waiting(place: Place, next_pick: int | None, in_order: int | None) -> Document:
    """A job that waits: its number among the picks foretold, if it is among them, and that in a pool with room for
    all."""
    entry = place.entry
    return {
        "state": "waiting",
        "job": job_name(entry.key),
        "uid": entry.key.uid,
        "queue": entry.queue,
        "position": place.rank + 1,
        "of": place.waiting,
        "nextPick": next_pick,
        "pickWithRoom": in_order,
        "priority": entry.priority,
        "submitted": entry.submitted,
        "demand": figures.format_amounts(entry.demand),
    }


def admitted(held: Reservation) -> Document:
    """A job that holds room."""
    return {
        "state": "admitted",
        "job": job_name(held.key),
        "uid": held.key.uid,
        "queue": held.queue,
        "attempt": held.attempt,
        "charge": figures.format_amounts(held.charge),
    }


def elsewhere(key: JobKey) -> Document:
    """A job that the queues do not know."""
    return {"state": "absent", "job": job_name(key), "uid": key.uid}


def job_name(key: JobKey) -> str:
    """Without the uid."""
    return f"{key.namespace}/{key.name}"
