"""The columns of the lists of queues, of picks and of nodes, over the documents of `coordinator.query`, and the parts
that lists of jobs share with these lists. The columns of jobs are in `coordinator.cli.job_columns`.

One rule: a column shows one value and never changes its place. A new column comes last, or only with `-o wide`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from coordinator.cli import output
from coordinator.cli.output import Document, TableColumn
from crds import labels, timestamps
from crds.keys import JobKey
from crds.resources import quantities
from crds.torchjob import submission_order as sequence
from queues import order
from queues.values import Entry

NOW, LATER = "now", "when room is free"
"""When a forecast pick is made."""
CPU, MEMORY = "cpu", "memory"
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
        TableColumn("AGE", lambda queue: age(queue, now), creation_order),
        TableColumn("LAG", _lag, lambda queue: status_of(queue).get("lag")),
        TableColumn("OLDEST", lambda queue: output.duration(_oldest(queue)), _oldest),
        TableColumn("COHORT", lambda queue: queue["spec"].get("cohort") or "-", wide=True),
        TableColumn("BORROWING", lambda queue: format_amounts(queue["spec"].get("borrowingLimit")), wide=True),
        TableColumn("ORDERING", lambda queue: queue["spec"].get("ordering", "BestEffortFIFO"), wide=True),
        TableColumn("FIRST", lambda queue: status_of(queue).get("first") or "-", wide=True),
    )


def with_later_picks(fitting: Sequence[Document], in_order: Sequence[Document], count: int) -> list[Document]:
    """Return the picks that fit now, then the picks that follow once there is room, at most `count` in all.

    `in_order` are the picks as they would be if the pool had room for everything.
    """
    now = Counter(map(_pick_identity, fitting))
    later = []
    for pick in in_order:
        identity = _pick_identity(pick)
        if now[identity]:
            now[identity] -= 1
        else:
            later.append(pick)
    merged = [pick | {"when": NOW} for pick in fitting] + [pick | {"when": LATER} for pick in later]
    return [pick | {"pick": number} for number, pick in enumerate(merged[:count], start=1)]


def _pick_identity(pick: Document) -> tuple[str, bool, int]:
    """Return the identity of a pick: a job is picked once, and then once for each further step of its growth. The jobs
    of other teams cannot be told apart."""
    return pick.get("uid", ""), bool(pick.get("growth")), int(pick.get("workers") or 0)


def submission_order(job: Document) -> tuple[float, str]:
    """Return the sort key of a TorchJob: its creation time, and within one second the order of a queue
    (`queues.order`)."""
    metadata = job["metadata"]
    key = JobKey.of(job)
    created = timestamps.parse_seconds(metadata["creationTimestamp"])
    place = sequence.read((metadata.get("annotations") or {}).get(labels.SUBMITTED))
    entry = Entry(key=key, queue=queue_of(job), submitted=created, sequence=place)
    return order.place(entry, aging_seconds=0.0)


def queue_of(job: Document) -> str:
    """Return the tenant queue that a TorchJob names."""
    return str((job["spec"].get("schedulingPolicy") or {}).get("queue") or job["metadata"]["namespace"])


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


def status_of(item: Document) -> dict[str, Any]:
    """Return the status of an object; empty if it has none yet."""
    return item.get("status") or {}


def _lag(queue: Document) -> str:
    lag = status_of(queue).get("lag")
    return "-" if lag is None else f"{float(lag):+.2f}"


def _oldest(queue: Document) -> float | None:
    return status_of(queue).get("oldestWaitSeconds")


def part(queue: Document, name: str) -> float | None:
    """Return the percents in the status of a queue as a number from 0 to 1; None if the status has no percents."""
    text = str(status_of(queue).get(name) or "").removesuffix("%")
    return float(text) / 100 if text.replace(".", "", 1).isdigit() else None


def format_amounts(amounts: dict[str, Any] | None) -> str:
    """Format amounts by name in one word."""
    return ",".join(f"{name}={amount}" for name, amount in (amounts or {}).items()) or "-"


def age(item: Document, now: datetime) -> str:
    """Return the age of an object."""
    return output.age(item["metadata"].get("creationTimestamp"), now)


def creation_order(item: Document) -> str | None:
    """Return a sort key that puts the youngest object first, as in a column of ages."""
    stamp = item["metadata"].get("creationTimestamp")
    return None if stamp is None else "".join(chr(255 - ord(letter)) for letter in stamp)


PICK_COLUMNS = (
    TableColumn("PICK", lambda pick: pick["pick"]),
    TableColumn("QUEUE", lambda pick: pick.get("queue", "-")),
    TableColumn("JOB", lambda pick: pick["job"]),
    TableColumn("COST", lambda pick: pick.get("cost", "-"), lambda pick: pick.get("cost")),
    TableColumn("WAITED", lambda pick: output.duration(pick.get("waitSeconds")), lambda pick: pick.get("waitSeconds")),
    TableColumn("DEMAND", lambda pick: format_amounts(pick.get("demand"))),
    TableColumn("WHEN", lambda pick: pick.get("when", "-")),
    TableColumn("PRIORITY", lambda pick: pick.get("priority", "-"), lambda pick: pick.get("priority"), wide=True),
    TableColumn("UID", lambda pick: pick.get("uid", "-"), wide=True),
)
"""The columns of the picks that `next` forecasts. Of the jobs of other teams only the number of the pick is known."""


def _words(amounts: Mapping[str, str]) -> str:
    """Format what a node or a pod has for people, the GPUs first, as in 8 gpu, 64 cpu, 512Gi."""
    names = sorted(amounts, key=lambda name: (name == MEMORY, name == CPU, name))
    return ", ".join(f"{amounts[name]}{_unit(name)}" for name in names)


def _unit(resource: str) -> str:
    return "" if resource == MEMORY else f" {resource.rpartition('/')[2]}"


def _largest_pod(nodes: Document) -> str:
    count = nodes["largestPodNodes"]
    return f"{_words(nodes['largestPod'])} ({count} {'node' if count == 1 else 'nodes'})" if count else "-"


def _free(nodes: Document, name: str) -> str:
    return f"{nodes['free'][name]} of {nodes['capacity'][name]}{_unit(name)}"


def _amount(amounts: Mapping[str, str], name: str) -> float:
    return float(quantities.exact(amounts.get(name, "0")))


POOL_COLUMNS = (
    TableColumn(
        "SHAPE", lambda nodes: _words(nodes["shape"]), lambda nodes: _amount(nodes["shape"], nodes["resource"])
    ),
    TableColumn("NODES", lambda nodes: nodes["nodes"]),
    TableColumn("READY", lambda nodes: nodes["ready"]),
    TableColumn(
        "FREE", lambda nodes: _free(nodes, nodes["resource"]), lambda nodes: _amount(nodes["free"], nodes["resource"])
    ),
    TableColumn("LARGEST POD THAT FITS", _largest_pod, lambda nodes: _amount(nodes["largestPod"], nodes["resource"])),
    TableColumn(
        "IN FRAGMENTS",
        lambda nodes: f"{nodes['fragments']}{_unit(nodes['resource'])}",
        lambda nodes: float(quantities.exact(nodes["fragments"])),
    ),
    TableColumn("RESOURCE", lambda nodes: nodes["resource"], wide=True),
    TableColumn("FREE CPU", lambda nodes: _free(nodes, CPU), lambda nodes: _amount(nodes["free"], CPU), wide=True),
    TableColumn(
        "FREE MEMORY", lambda nodes: _free(nodes, MEMORY), lambda nodes: _amount(nodes["free"], MEMORY), wide=True
    ),
)
"""The columns of the nodes by shape (`coordinator.query.pool_nodes`)."""
