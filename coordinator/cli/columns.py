"""The columns of every list, over the documents of `coordinator.query.documents` and over objects.

One rule: pure; a column shows one thing, in the same place for ever: new ones come last, or only with `-o wide`.
"""

from datetime import datetime
from typing import Any

from coordinator.cli import output
from coordinator.cli.output import Column, Document
from crds import labels
from crds.keys import JobKey
from crds.resources import quantities
from crds.torchjob import submission_order as sequence
from queues import order
from queues.values import Entry

STATES = {"None": "Open"}


def queue_columns(now: datetime) -> tuple[Column, ...]:
    """Of TenantQueues with figures in their status."""
    return (
        Column("NAME", lambda each: each["metadata"]["name"]),
        Column("WEIGHT", lambda each: each["spec"].get("weight", 1)),
        Column("STATE", queue_state),
        Column("PENDING", lambda each: _status(each).get("pending", 0)),
        Column("ADMITTED", lambda each: _status(each).get("admitted", 0)),
        Column("SHARE", lambda each: _status(each).get("share") or "-", lambda each: _part(each, "share")),
        Column("TARGET", lambda each: _status(each).get("target") or "-", lambda each: _part(each, "target")),
        Column("USAGE", usage),
        Column("AGE", lambda each: _age(each, now), _created),
        Column("LAG", _lag, lambda each: _status(each).get("lag")),
        Column("OLDEST", _oldest, lambda each: _status(each).get("oldestWaitSeconds")),
        Column("COHORT", lambda each: each["spec"].get("cohort") or "-", wide=True),
        Column("BORROWING", lambda each: _amounts(each["spec"].get("borrowingLimit")), wide=True),
        Column("ORDERING", lambda each: each["spec"].get("ordering", "BestEffortFIFO"), wide=True),
        Column("FIRST", lambda each: _status(each).get("first") or "-", wide=True),
    )


def pick_columns() -> tuple[Column, ...]:
    """Of the picks that `next` foretells."""
    return (
        Column("PICK", lambda each: each["pick"]),
        Column("QUEUE", lambda each: each["queue"]),
        Column("JOB", lambda each: each["job"]),
        Column("COST", lambda each: each["cost"]),
        Column("WAITED", lambda each: output.duration(each["waitSeconds"]), lambda each: each["waitSeconds"]),
        Column("DEMAND", lambda each: _amounts(each["demand"])),
        Column("PRIORITY", lambda each: each["priority"], wide=True),
        Column("UID", lambda each: each["uid"], wide=True),
    )


def job_columns(now: datetime) -> tuple[Column, ...]:
    """Of TorchJobs."""
    return (
        Column("NAMESPACE", lambda each: each["metadata"]["namespace"]),
        Column("NAME", lambda each: each["metadata"]["name"]),
        Column("QUEUE", queue_of),
        Column("PHASE", lambda each: _status(each).get("phase") or "Pending"),
        Column("PODS", _pods, _active),
        Column("AGE", lambda each: _age(each, now), _created),
        Column("RUNTIME", lambda each: output.duration(_runtime(each, now)), lambda each: _runtime(each, now)),
        Column("PRIORITY", lambda each: (each["spec"].get("schedulingPolicy") or {}).get("priority", 0), wide=True),
        Column("ATTEMPT", lambda each: _status(each).get("attempt", 0), wide=True),
        Column("RESTARTS", lambda each: _status(each).get("restartCount", 0), wide=True),
        Column("REASON", lambda each: (_status(each).get("queue") or {}).get("reason") or "-", wide=True),
    )


def submission_order(job: Document) -> tuple[float, str]:
    """What TorchJobs are sorted by: their creation, and within one second as in a queue (`queues.order`)."""
    metadata = job["metadata"]
    key = JobKey(metadata["namespace"], metadata["name"], metadata["uid"])
    created = datetime.fromisoformat(metadata["creationTimestamp"]).timestamp()
    place = sequence.read((metadata.get("annotations") or {}).get(labels.SUBMITTED))
    return order.place(Entry(key=key, queue=queue_of(job), submitted=created, sequence=place), aging_seconds=0.0)


def queue_of(job: Document) -> str:
    """The tenant queue a TorchJob names."""
    return str((job["spec"].get("schedulingPolicy") or {}).get("queue") or job["metadata"]["namespace"])


def queue_state(queue: Document) -> str:
    """Open, Hold or HoldAndDrain."""
    policy = str(queue["spec"].get("stopPolicy", "None"))
    return STATES.get(policy, policy)


def usage(queue: Document) -> str:
    """What is used of each limited name, and what else is used."""
    limits, used = queue["spec"].get("quota") or {}, _status(queue).get("usage") or {}
    limits = {quantities.canonical(name): most for name, most in limits.items()}
    shown = [f"{name}={amount}{f'/{limits[name]}' if name in limits else ''}" for name, amount in used.items()]
    return ",".join(shown + [f"{name}=0/{most}" for name, most in limits.items() if name not in used]) or "-"


def _status(item: Document) -> dict[str, Any]:
    return item.get("status") or {}


def _lag(queue: Document) -> str:
    lag = _status(queue).get("lag")
    return "-" if lag is None else f"{float(lag):+.2f}"


def _oldest(queue: Document) -> str:
    return output.duration(_status(queue).get("oldestWaitSeconds"))


def _part(queue: Document, name: str) -> float | None:
    text = str(_status(queue).get(name) or "").rstrip("%")
    return float(text) if text.replace(".", "", 1).isdigit() else None


def _amounts(found: dict[str, Any] | None) -> str:
    return ",".join(f"{name}={amount}" for name, amount in (found or {}).items()) or "-"


def _age(item: Document, now: datetime) -> str:
    return output.age(item["metadata"].get("creationTimestamp"), now)


def _created(item: Document) -> str | None:
    """The youngest first, as ages go."""
    stamp = item["metadata"].get("creationTimestamp")
    return None if stamp is None else "".join(chr(255 - ord(letter)) for letter in stamp)


def _active(job: Document) -> int:
    return sum((task or {}).get("active", 0) for task in (_status(job).get("taskStatuses") or {}).values())


def _pods(job: Document) -> str:
    return f"{_active(job)}/{sum(task.get('numTasks', 1) for task in job['spec']['torchTaskSpecs'].values())}"


def _runtime(job: Document, now: datetime) -> float | None:
    began, ended = _status(job).get("startTime"), _status(job).get("completionTime")
    if not began:
        return None
    return ((datetime.fromisoformat(ended) if ended else now) - datetime.fromisoformat(began)).total_seconds()
