"""Everything about one job in one document: where it stands, which of its tasks is short and why, what happened to it.

One rule: pure, over objects as the API server shows them; the same document is printed for programs.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from coordinator.cli import columns
from coordinator.query.documents import Document
from crds import labels
from crds.errors import InvalidObject
from crds.torchjob import resource_quota, torchjob
from crds.torchjob.conditions import FINISHED
from crds.torchjob.resource_quota import Quota
from crds.torchjob.torchjob import TorchJob
from gang.values import GroupView
from kube.api import Manifest
from reconcilers.views import containers, pod_outcome, pod_problems, timestamps

MOST_EVENTS = 10
GOING = "it is being deleted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What there is beside the job itself."""

    pods: tuple[Manifest, ...] = ()
    groups: tuple[GroupView, ...] = ()
    events: tuple[Manifest, ...] = ()
    quotas: tuple[Quota, ...] = ()
    """The ResourceQuotas of its namespace, if it waits for them."""
    now: datetime | None = None
    """None: what depends on the time is left out."""
    notes: tuple[str, ...] = field(default=())
    """What could not be looked at, and why."""
    embedded: bool = False
    """Whether pods run on an embedded node, which enters the folder of submission."""


def of(item: Manifest, around: Around) -> Document:
    """The document."""
    status, policy = item.get("status") or {}, item["spec"].get("schedulingPolicy") or {}
    admission = status.get("admission")
    return {
        "phase": status.get("phase") or "Pending",
        "queue": columns.queue_of(item),
        "waits": _waits(item, around),
        "admission": admission,
        "gangScheduler": (admission or {}).get("gangScheduler") or policy.get("gangScheduler") or None,
        "groups": [_group(each) for each in around.groups],
        "tasks": _tasks(item, around),
        "restarts": _restarts(item) | _backoff(item, around),
        "excludedNodes": list(status.get("excludedNodes") or ()),
        "events": [_event(each) for each in _newest(around.events)],
        "notes": list(around.notes),
    }


def _waits(item: Manifest, around: Around) -> Document | None:
    """Why a job waits, with the numbers of now where ResourceQuotas keep it from being admitted; None if nothing is
    known of that, or it does not wait."""
    status = item.get("status") or {}
    queue = status.get("queue") or {}
    if status.get("admission") or status.get("phase") in FINISHED or not queue.get("reason"):
        return None
    return {"code": queue["reason"], "message": _short_of(item, around.quotas) or queue.get("message") or ""}


def _short_of(item: Manifest, quotas: tuple[Quota, ...]) -> str:
    """The ResourceQuota that does not hold the job; empty if there is none, or the job cannot be read."""
    try:
        short = resource_quota.shortage(resource_quota.of_job(torchjob.parse(item)), quotas) if quotas else None
    except InvalidObject:
        return ""
    return str(short) if short is not None else ""


def _group(group: GroupView) -> Document:
    phase, message = ("Terminating", GOING) if group.deleting else (group.phase, group.message)
    found = {"name": group.name, "kind": f"{group.resource.plural}.{group.resource.group}", "phase": phase}
    return found | ({"message": message} if message else {})


def _restarts(item: Manifest) -> Document:
    status = item.get("status") or {}
    return {
        "counted": status.get("restartCount", 0),
        "limit": item["spec"].get("backoffLimit", 6),
        "generation": status.get("restartGeneration", 0),
        "disruptions": status.get("disruptions", 0),
        "nodeFailures": dict(status.get("nodeFailures") or {}),
    }


def _backoff(item: Manifest, around: Around) -> Document:
    """Until when the job backs off, and which pods wait for that; nothing if it does not."""
    status = item.get("status") or {}
    until = timestamps.seconds(status.get("restartNotBefore"))
    if until is None or around.now is None or until <= around.now.timestamp() or not status.get("admission"):
        return {}
    return {"notBefore": status["restartNotBefore"], "waiting": list(status.get("backingOff") or ())}


def _event(event: Manifest) -> Document:
    names = {"type": "type", "reason": "reason", "message": "message", "lastTimestamp": "at"}
    return {name: event[key] for key, name in names.items() if event.get(key)}


def _newest(events: Iterable[Manifest]) -> list[Manifest]:
    """The last ones, oldest first."""
    return sorted(events, key=lambda each: str(each.get("lastTimestamp") or ""))[-MOST_EVENTS:]


def _tasks(item: Manifest, around: Around) -> list[Document]:
    """Each task of a job that can be read, counted."""
    try:
        job = torchjob.parse(item)
    except InvalidObject:
        return []
    return [_task(job, task_type, around) for task_type in job.spec.tasks]


def _task(job: TorchJob, task_type: str, around: Around) -> Document:
    wanted = job.spec.tasks[task_type].num_tasks
    minimum = min(job.spec.members(task_type), wanted)
    pods = [each for each in around.pods if _marks(each).get(labels.TASK_TYPE) == task_type.lower()]
    counts = Counter(_phase(each) for each in pods)
    short = job.status.admission is not None and not job.finished
    short = short and counts["Running"] + counts["Succeeded"] < minimum
    return {
        "task": task_type,
        **_workload(job, task_type, around),
        "wanted": wanted,
        "minimum": minimum,
        "running": counts["Running"],
        "ready": sum(map(_ready, pods)),
        "succeeded": counts["Succeeded"],
        "failed": counts["Failed"],
        "short": short,
        "why": [*_against(pods), *_not_made(job, task_type, wanted - len(pods), around)] if short else [],
    }


def _workload(job: TorchJob, task_type: str, around: Around) -> Document:
    """What the main container of a task's pods runs; an empty folder where the image decides it, or nothing does."""
    container = containers.main(job.spec.tasks[task_type].template.get("spec") or {})
    submitted = job.metadata.annotations.get(labels.SUBMIT_DIRECTORY, "") if around.embedded else ""
    return {
        "image": str(container.get("image") or ""),
        "command": [*_words(container.get("command")), *_words(container.get("args"))],
        "folder": str(container.get("workingDir") or submitted),
    }


def _words(found: object) -> list[str]:
    """Templates are not checked before they become pods."""
    return list(map(str, found)) if isinstance(found, list) else []


def _marks(pod: Manifest) -> Mapping[str, str]:
    found: Mapping[str, str] = pod["metadata"].get("labels") or {}
    return found


def _phase(pod: Manifest) -> str:
    """Of a pod that is on its way out only what it has become counts; Running is one whose main container runs."""
    phase = pod_outcome.effective_phase(pod)
    if "deletionTimestamp" in pod["metadata"] and phase not in FINISHED:
        return "Terminating"
    return "Down" if phase == "Running" and not pod_problems.is_up(pod) else phase


def _ready(pod: Manifest) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _against(pods: Iterable[Manifest]) -> list[Document]:
    """What keeps pods from running, the commonest first, each with the first pod it was found at."""
    found: dict[str, Document] = {}
    for pod in pods:
        ailment = pod_problems.find_problem(pod)
        if ailment is not None:
            said = {"reason": ailment.reason, "message": ailment.message, "pod": pod["metadata"]["name"], "pods": 0}
            found.setdefault(ailment.reason, said)["pods"] += 1
    return sorted(found.values(), key=lambda each: -each["pods"])


def _not_made(job: TorchJob, task_type: str, missing: int, around: Around) -> list[Document]:
    """Why pods are not there yet, as far as that can be told from outside."""
    if missing <= 0:
        return []
    reason, message = _holding(job, task_type, around)
    return [{"reason": reason, "message": message, "pod": "", "pods": missing}]


def _waits_until(job: TorchJob, task_type: str, around: Around) -> str:
    """Until when a task's missing pods wait because the job backs off; empty: they do not."""
    until, names = job.status.restart_not_before, job.status.backing_off
    if until is None or around.now is None or until <= around.now:
        return ""
    count = job.spec.tasks[task_type].num_tasks
    concerned = not names or any(job.pod_name(task_type, index) in names for index in range(count))
    return timestamps.text(until.timestamp()) if concerned else ""


def _holding(job: TorchJob, task_type: str, around: Around) -> tuple[str, str]:
    hindered = next((each for each in job.status.conditions if each.type == "Admitted" and each.status == "True"), None)
    if hindered is not None and hindered.reason not in ("Admitted", "Running", "Restarting"):
        return hindered.reason, hindered.message
    until = _waits_until(job, task_type, around)
    if until:
        return "BackOff", f"pods that failed are made again at {until}"
    going = next((each for each in around.groups if each.deleting), None)
    if going is not None:
        return "PodGroupTerminating", f"{going.resource.kind} {going.name}: {GOING}"
    group = next((each for each in around.groups if each.phase != "Ready"), None)
    if group is not None:
        return group.reason or "PodGroup" + group.phase, group.message
    upstreams = ", ".join(f"{each.task_type} {each.phase}" for each in job.spec.tasks[task_type].depends_on)
    return "NotMade", f"made after {upstreams}" if upstreams else "to be made"
