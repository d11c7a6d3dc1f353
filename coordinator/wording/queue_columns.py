"""The columns of the list of queues, over TenantQueues with the figures of `coordinator.query` in their status."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from coordinator.query.questions import Document
from coordinator.wording import ages
from coordinator.wording.amounts import format_amounts
from coordinator.wording.columns import TableColumn, status_of
from crds.resources import quantities

STATES = {"None": "Open"}


def queue_columns(now: datetime) -> tuple[TableColumn, ...]:
    """Return the columns of a list of TenantQueues."""
    return (
        TableColumn("NAME", lambda queue: queue["metadata"]["name"]),
        TableColumn("WEIGHT", lambda queue: queue["spec"].get("weight", 1)),
        TableColumn("STATE", queue_state),
        TableColumn("PENDING", lambda queue: status_of(queue).get("pending", 0)),
        TableColumn("ADMITTED", lambda queue: status_of(queue).get("admitted", 0)),
        TableColumn("SHARE", lambda queue: status_of(queue).get("share") or "-", lambda queue: part(queue, "share")),
        TableColumn("TARGET", lambda queue: status_of(queue).get("target") or "-", lambda queue: part(queue, "target")),
        TableColumn("USAGE", usage),
        TableColumn("AGE", lambda queue: ages.age_of(queue, now), ages.creation_order),
        TableColumn("LAG", _lag, lambda queue: status_of(queue).get("lag")),
        TableColumn("OLDEST", lambda queue: ages.duration(_oldest(queue)), _oldest),
        TableColumn("COHORT", lambda queue: queue["spec"].get("cohort") or "-", wide=True),
        TableColumn("BORROWING", lambda queue: format_amounts(queue["spec"].get("borrowingLimit")), wide=True),
        TableColumn("ORDERING", lambda queue: queue["spec"].get("ordering", "BestEffortFIFO"), wide=True),
        TableColumn("FIRST", lambda queue: status_of(queue).get("first") or "-", wide=True),
    )


def busy_first(queues: Iterable[Document]) -> Iterator[Document]:
    """Yield the queues with those first that have jobs, so that they are seen first. Of the others, none is looked into
    before it is needed."""
    idle = []
    for queue in queues:
        status = status_of(queue)
        if status.get("pending") or status.get("admitted"):
            yield queue
        else:
            idle.append(queue)
    yield from idle


def queue_state(queue: Document) -> str:
    """Return Open, Hold or HoldAndDrain; Deleted for a queue that exists only as long as it has work."""
    if status_of(queue).get("deleted") and "uid" not in queue["metadata"]:
        return "Deleted"
    policy = str(queue["spec"].get("stopPolicy", "None"))
    return STATES.get(policy, policy)


def usage(queue: Document) -> str:
    """Format the usage of each limited resource, with a mark if it is above its limit, and of every other resource in
    use."""
    limits, used = queue["spec"].get("quota") or {}, status_of(queue).get("usage") or {}
    limits = {quantities.canonical(name): most for name, most in limits.items()}
    limited = [f"{name}={amount}{_limit(amount, limits.get(name))}" for name, amount in used.items()]
    return ",".join(limited + [f"{name}=0/{most}" for name, most in limits.items() if name not in used]) or "-"


def _limit(amount: Any, most: Any) -> str:
    if most is None:
        return ""
    return f"/{most}" + ("(above)" if quantities.exact(amount) > quantities.exact(most) else "")


def _lag(queue: Document) -> str:
    lag = status_of(queue).get("lag")
    return "-" if lag is None else f"{float(lag):+.2f}"


def _oldest(queue: Document) -> float | None:
    return status_of(queue).get("oldestWaitSeconds")


def part(queue: Document, name: str) -> float | None:
    """Return the percents in the status of a queue as a number from 0 to 1; None if the status has no percents."""
    text = str(status_of(queue).get(name) or "").removesuffix("%")
    return float(text) / 100 if text.replace(".", "", 1).isdecimal() else None
