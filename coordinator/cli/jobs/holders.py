"""The jobs that hold the room that a job waits for, as far as this account may read these jobs.

One rule: the name of a job that this account may not read is not shown.
"""

from coordinator.cli import job_ref
from coordinator.cli.session import Session
from coordinator.follow import deletion
from coordinator.query.questions import ANOTHER, Document
from coordinator.wording import job_state
from crds import labels
from crds.api_resources import PODS
from crds.keys import JobKey
from kube import errors
from kube.api import Manifest


def read(session: Session, answer: Document) -> Document:
    """Return an answer of a coordinator with the known facts about the holders of room: their names, and until when
    ending holders keep their room.
    """
    if not answer.get("holders"):
        return answer
    return answer | {"holders": [_read(session, each) for each in answer["holders"]]}


def _read(session: Session, holder: Document) -> Document:
    if not holder["uid"]:
        return holder
    namespace, _, name = holder["job"].partition("/")
    key = JobKey(namespace, name, holder["uid"])
    try:
        item: Manifest | None = job_ref.find(session, str(key))
    except errors.NotFound:
        item = None
    except errors.ClusterError:
        return {**holder, "job": ANOTHER, "uid": ""}
    ending = _ending(item)
    return holder | ({"ending": ending, "until": _until(session, key)} if ending else {})


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


def _until(session: Session, key: JobKey) -> str:
    """Return when the grace of the last pod of a job ends; empty if no pod is being deleted, or that is not known."""
    try:
        pods = session.cluster.list(PODS, key.namespace, label_selector=f"{labels.JOB_UID}={key.uid}").items
    except errors.ClusterError:
        return ""
    return max((pod["metadata"].get("deletionTimestamp") or "" for pod in pods), default="")
