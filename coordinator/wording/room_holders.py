"""The jobs that hold the room that a job waits for, as far as a reader may read these jobs.

One rule: the name of a job that the reader may not read is not shown.
"""

from coordinator.follow import deletion, job_objects
from coordinator.query.questions import ANOTHER, Document
from coordinator.wording import job_state
from coordinator.wording.amounts import format_amounts
from crds import labels
from crds.api_resources import PODS
from crds.keys import JobKey
from kube import errors
from kube.api import Cluster, Manifest


def read(cluster: Cluster, answer: Document) -> Document:
    """Return an answer of a coordinator with the known facts about the holders of room: their names, and until when
    ending holders keep their room.
    """
    if not answer.get("holders"):
        return answer
    return answer | {"holders": [_read(cluster, each) for each in answer["holders"]]}


def _read(cluster: Cluster, holder: Document) -> Document:
    if not holder["uid"]:
        return holder
    namespace, _, name = holder["job"].partition("/")
    key = JobKey(namespace, name, holder["uid"])
    try:
        item: Manifest | None = job_objects.read(cluster, key)
    except errors.NotFound:
        item = None
    except errors.ClusterError:
        return {**holder, "job": ANOTHER, "uid": ""}
    ending = _ending(item)
    return holder | ({"ending": ending, "until": _until(cluster, key)} if ending else {})


def _ending(item: Manifest | None) -> str:
    """Return how a job ends that still holds room; empty if it does not end."""
    if item is None:
        return "deleted"
    if deletion.is_deleting(item):
        return "being deleted"
    if item["spec"].get("cancel"):
        return "cancelled"
    if job_state.is_finished(item):
        return "ended"
    return "suspended" if item["spec"].get("suspend") else ""


def _until(cluster: Cluster, key: JobKey) -> str:
    """Return when the grace of the last pod of a job ends; empty if no pod is being deleted, or that is not known."""
    try:
        pods = cluster.list(PODS, key.namespace, label_selector=f"{labels.JOB_UID}={key.uid}").items
    except errors.ClusterError:
        return ""
    return max((pod["metadata"].get("deletionTimestamp") or "" for pod in pods), default="")


def format_holders(answer: Document) -> str:
    """Return the holders of room in one line; empty if none are known."""
    parts = [_format(each) for each in answer.get("holders") or ()]
    if more := answer.get("otherHolders"):
        parts.append(f"{more} other{'' if more == 1 else 's'}")
    *first, last = parts or [""]
    return f"{', '.join(first)} and {last}" if first else last


def _format(holder: Document) -> str:
    name = f"job {holder['job']}" if holder["uid"] else ANOTHER
    queue = f" of queue {holder['queue']}" if holder["queue"] else ""
    end = ""
    if holder.get("ending"):
        until = f"its pods end by {holder['until']}" if holder["until"] else "its pods are still to end"
        end = f"; {holder['ending']}, {until}"
    return f"{name}{queue} ({format_amounts(holder['charge'])}{end})"
