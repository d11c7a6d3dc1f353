"""What every list and sentence says of a TorchJob: its name, its queue, and whether it holds room or has finished."""

from coordinator.query.questions import Document
from crds import labels, timestamps
from crds.keys import JobKey
from crds.torchjob import submission_order as sequence
from crds.torchjob.conditions import FINISHED
from kube.api import Manifest
from queues import order
from queues.values import Entry


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


def is_admitted(item: Manifest) -> bool:
    """Return whether the job is admitted, and so holds room."""
    return bool((item.get("status") or {}).get("admission")) and not is_finished(item)


def is_finished(item: Manifest) -> bool:
    """Return whether the job has finished."""
    return (item.get("status") or {}).get("phase") in FINISHED


def display_name(item: Manifest) -> str:
    """Return `namespace/name` of the job, for people."""
    return f"{item['metadata']['namespace']}/{item['metadata']['name']}"


def without_hold(item: Manifest) -> Manifest:
    """Return a job without the reason Held, which its status keeps after the job was released: for a moment, and for
    as long as no worker can write it."""
    status = item.get("status") or {}
    is_held = (item["spec"].get("schedulingPolicy") or {}).get("hold")
    if is_held or (status.get("queue") or {}).get("reason") != "Held":
        return item
    queue = {name: value for name, value in status["queue"].items() if name not in ("reason", "message")}
    return {**item, "status": {**status, "queue": queue}}
