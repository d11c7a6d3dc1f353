"""One document with everything about one job: its state, each task that is short of pods and why, and its last events.

One rule: the same document is printed for programs.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from coordinator.follow import deletion, endings, wait_reasons
from coordinator.query.questions import Document
from coordinator.wording import job_state
from crds import holds, labels, timestamps
from crds.errors import InvalidObject
from crds.torchjob import grant, resource_quota, torchjob
from crds.torchjob.conditions import FINISHED, LACKS_PODS, WAITS_FOR_RANKS
from crds.torchjob.resource_quota import Quota
from crds.torchjob.torchjob import TorchJob
from gang.values import GroupView
from kube.api import Manifest
from reconcilers.plan.health.finding import HANGING
from reconcilers.views import containers, pod_outcome, pod_problems

MOST_EVENTS = 10
GOING = "it is being deleted"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobContext:
    """The objects around a job: its pods, groups, events and quotas."""

    pods: tuple[Manifest, ...] = ()
    groups: tuple[GroupView, ...] = ()
    events: tuple[Manifest, ...] = ()
    quotas: tuple[Quota, ...] = ()
    """The ResourceQuotas of the job's namespace, if the job waits for them."""
    now: datetime | None = None
    """The current time; if None, everything that depends on the time is left out."""
    notes: tuple[str, ...] = field(default=())
    """Notes on objects that could not be read, and why."""
    embedded: bool = False
    """Whether pods run on an embedded node, which starts them in the folder of submission."""


def describe(item: Manifest, job_context: JobContext) -> Document:
    """Return the document of a job."""
    status, policy = item.get("status") or {}, item["spec"].get("schedulingPolicy") or {}
    admission = status.get("admission")
    return {
        "phase": deletion.DELETING if deletion.is_deleting(item) else status.get("phase") or "Pending",
        "ending": _ending(item),
        "deletion": deletion.describe(item, job_context.pods) if deletion.is_deleting(item) else None,
        "queue": job_state.queue_of(item),
        "waits": _waits(item, job_context),
        "admission": admission,
        "held": _held(status, job_context.now),
        "gangScheduler": (admission or {}).get("gangScheduler") or policy.get("gangScheduler") or None,
        "groups": [_group(group) for group in job_context.groups],
        "tasks": _without_followers(_tasks(item, job_context)),
        "restarts": _restarts(item) | _backoff(item, job_context) | _driver(item, job_context),
        "excludedNodes": list(status.get("excludedNodes") or ()),
        "hang": status.get("hang"),
        "events": _events(job_context.events),
        "notes": list(job_context.notes),
    }


def _held(status: Document, now: datetime | None) -> Document | None:
    """Return for how long a job has held which room, until now, as amount x seconds; None if it has held none, or if
    the status cannot be read: then the rest of the job is shown."""
    try:
        found = holds.read(status, now) if now is not None else ()
    except (KeyError, TypeError, ValueError):
        return None
    return {"attempts": status.get("attempt", 0), "seconds": holds.total_seconds(found)} if found else None


def _ending(item: Manifest) -> Document | None:
    """Return why a job has ended, for programs; None for an unfinished job."""
    if not endings.is_finished(item):
        return None
    reason, code = endings.cause_of(item)
    return {"reason": reason, "exitCode": code}


def _waits(item: Manifest, job_context: JobContext) -> Document | None:
    """Return why a job waits, also for some of its pods; None if it does not, or its status does not say why.

    Where a ResourceQuota blocks the job, the message has the current numbers.
    """
    status = item.get("status") or {}
    queue = (job_state.without_hold(item).get("status") or {}).get("queue") or {}
    if message := wait_reasons.for_ranks(item):
        return {"code": WAITS_FOR_RANKS, "message": message}
    if (lacking := wait_reasons.of_pods(item))[0]:
        return {"code": lacking[0], "message": lacking[1]}
    if status.get("admission") or status.get("phase") in FINISHED or not queue.get("reason"):
        return None
    return {"code": queue["reason"], "message": _short_of(item, job_context.quotas) or queue.get("message") or ""}


def _short_of(item: Manifest, quotas: tuple[Quota, ...]) -> str:
    """Return the ResourceQuota that has too little left for the job; empty if none has, or the job is invalid."""
    try:
        short = resource_quota.shortage(resource_quota.of_job(torchjob.parse(item)), quotas) if quotas else None
    except InvalidObject:
        return ""
    return str(short) if short is not None else ""


def _group(group: GroupView) -> Document:
    phase, message = ("Terminating", GOING) if group.deleting else (group.phase, group.message)
    document = {"name": group.name, "kind": f"{group.resource.plural}.{group.resource.group}", "phase": phase}
    return document | ({"message": message} if message else {})


def _restarts(item: Manifest) -> Document:
    status = item.get("status") or {}
    return {
        "counted": status.get("restartCount", 0),
        "limit": item["spec"].get("backoffLimit", 6),
        "generation": status.get("restartGeneration", 0),
        "disruptions": status.get("disruptions", 0),
        "nodeFailures": dict(status.get("nodeFailures") or {}),
    }


def _backoff(item: Manifest, job_context: JobContext) -> Document:
    """Return the end of the job's back-off and the pods that wait for it; empty if the job does not back off."""
    status = item.get("status") or {}
    until = timestamps.seconds_or_none(status.get("restartNotBefore"))
    if until is None or job_context.now is None or until <= job_context.now.timestamp() or not status.get("admission"):
        return {}
    return {"notBefore": status["restartNotBefore"], "waiting": list(status.get("backingOff") or ())}


def _driver(item: Manifest, job_context: JobContext) -> Document:
    """Return the driver that restarts the job's containers in place, and why no better driver does; empty for a job
    without pods.
    """
    status = item.get("status") or {}
    if not status.get("admission"):
        return {}
    chosen = status.get("inPlace") or {"driver": "local" if job_context.embedded else "recreate"}
    return {"driver": chosen["driver"]} | ({"why": chosen["message"]} if chosen.get("message") else {})


def _events(events: Iterable[Manifest]) -> list[Document]:
    """Return the newest events, in the order of their time."""
    names = {"type": "type", "reason": "reason", "message": "message", "lastTimestamp": "at"}
    newest = sorted(events, key=_time_order)[-MOST_EVENTS:]
    return [
        {name: event[key] for key, name in names.items() if event.get(key)} | {"from": _reporter(event)}
        for event in newest
    ]


def _time_order(event: Manifest) -> tuple[str, int, str]:
    """Return the place of an event in time. Of one second, the event that was written first comes first: versions of
    objects are numbers that grow."""
    version = str((event.get("metadata") or {}).get("resourceVersion") or "")
    return str(event.get("lastTimestamp") or ""), len(version), version


def _reporter(event: Manifest) -> str:
    """Return who says that it wrote an event: a component, and where it runs. Nobody checks what a writer says."""
    source = event.get("source") or {}
    component = event.get("reportingComponent") or source.get("component") or "unknown"
    where = event.get("reportingInstance") or source.get("host")
    return f"{component} on {where}" if where else str(component)


def _tasks(item: Manifest, job_context: JobContext) -> list[Document]:
    """Return each task with the counts of its pods; empty if the job is invalid."""
    try:
        job = torchjob.parse(item)
    except InvalidObject:
        return []
    return [_task(job, task_type, job_context) for task_type in job.spec.tasks]


def _without_followers(tasks: list[Document]) -> list[Document]:
    """Return the tasks without the pods that only wait for other pods of their gang, where one of those other pods has
    a cause.
    """
    placed = [(_place(each), each) for task in tasks for each in task["why"] if each["pod"]]
    if not any(place < pod_problems.WAITS_FOR_OTHERS for place, _ in placed):
        return tasks
    return [
        {**task, "why": [each for each in task["why"] if _place(each) < pod_problems.WAITS_FOR_OTHERS]}
        for task in tasks
    ]


def _place(blocker: Document) -> int:
    return pod_problems.place(blocker["reason"], blocker["message"])


def _task(job: TorchJob, task_type: str, job_context: JobContext) -> Document:
    count = job.spec.tasks[task_type].num_tasks
    as_granted = job if job.admission is None else grant.as_granted(job, job.admission)
    granted = as_granted.spec.tasks[task_type].num_tasks
    minimum = min(job.spec.members(task_type), granted)
    labelled = (((pod["metadata"].get("labels") or {}).get(labels.TASK_TYPE), pod) for pod in job_context.pods)
    pods = [pod for name, pod in labelled if name == task_type.lower()]
    counts = Counter(_phase(pod) for pod in pods)
    is_active = job.status.admission is not None and not job.is_finished
    present = counts["Running"] + counts["Succeeded"]
    blockers = [*_blockers(pods), *_missing_pods(job, task_type, granted - len(pods), job_context)]
    return {
        "task": task_type,
        **_workload(job, task_type, job_context),
        "wanted": count,
        "minimum": minimum,
        "running": counts["Running"],
        "ready": sum(map(_ready, pods)),
        "succeeded": counts["Succeeded"],
        "failed": counts["Failed"],
        "short": is_active and present < minimum,
        "why": blockers if is_active and present < granted else [],
    }


def _workload(job: TorchJob, task_type: str, job_context: JobContext) -> Document:
    """Return image, command and working folder of a task's main container. The folder is empty if the image decides."""
    container = containers.main(job.spec.tasks[task_type].template.get("spec") or {})
    submitted = job.metadata.annotations.get(labels.SUBMIT_DIRECTORY, "") if job_context.embedded else ""
    return {
        "image": str(container.get("image") or ""),
        "command": [*_texts(container.get("command")), *_texts(container.get("args"))],
        "folder": str(container.get("workingDir") or submitted),
    }


def _texts(value: object) -> list[str]:
    """Return a list of texts; empty for any other value, since a template is not validated before it becomes a pod."""
    return list(map(str, value)) if isinstance(value, list) else []


def _phase(pod: Manifest) -> str:
    """Return the phase that a pod counts as.

    A pod that is being deleted counts as Succeeded or Failed once it has ended, else as Terminating. A pod counts as
    Running only while its main container runs.
    """
    phase = pod_outcome.effective_phase(pod)
    if "deletionTimestamp" in pod["metadata"] and phase not in FINISHED:
        return "Terminating"
    return "Down" if phase == "Running" and not pod_problems.is_up(pod) else phase


def _ready(pod: Manifest) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def _blockers(pods: Iterable[Manifest]) -> list[Document]:
    """Return the reasons why pods do not run, the most telling and of these the most frequent first, each with the
    first pod it applies to."""
    blockers: dict[str, Document] = {}
    for pod in pods:
        problem = pod_problems.find_problem(pod)
        if problem is not None:
            blocker = {"reason": problem.reason, "message": problem.message, "pod": pod["metadata"]["name"], "pods": 0}
            known = blockers.setdefault(problem.reason, blocker)
            if _place(blocker) < _place(known):  # of pods that are unschedulable, one names the cause
                known |= {"message": problem.message, "pod": pod["metadata"]["name"]}
            known["pods"] += 1
    return sorted(blockers.values(), key=lambda blocker: (_place(blocker), -blocker["pods"]))


def _missing_pods(job: TorchJob, task_type: str, missing: int, job_context: JobContext) -> list[Document]:
    """Return why pods do not exist yet, as far as the objects show the reason."""
    if missing <= 0:
        return []
    reason, message = _missing_reason(job, task_type, job_context)
    return [{"reason": reason, "message": message, "pod": "", "pods": missing}]


def _waits_until(job: TorchJob, task_type: str, job_context: JobContext) -> str:
    """Return the end of the back-off that a task's missing pods wait for; empty if the pods do not wait for a
    back-off."""
    until, names = job.status.restart_not_before, job.status.backing_off
    if until is None or job_context.now is None or until <= job_context.now:
        return ""
    count = job.spec.tasks[task_type].num_tasks
    concerned = not names or any(job.pod_name(task_type, index) in names for index in range(count))
    return timestamps.format_time(until.timestamp()) if concerned else ""


def _missing_reason(job: TorchJob, task_type: str, job_context: JobContext) -> tuple[str, str]:
    admitted = next((each for each in job.status.conditions if (each.type, each.status) == ("Admitted", "True")), None)
    if admitted is not None and admitted.reason not in ("Admitted", "Running", "Restarting", HANGING, *LACKS_PODS):
        return admitted.reason, admitted.message
    if until := _waits_until(job, task_type, job_context):
        return "BackOff", f"failed pods are created again at {until}"
    deleting_group = next((group for group in job_context.groups if group.deleting), None)
    if deleting_group is not None:
        return "PodGroupTerminating", f"{deleting_group.resource.kind} {deleting_group.name}: {GOING}"
    group = next((group for group in job_context.groups if group.phase != "Ready"), None)
    if group is not None:
        return group.reason or "PodGroup" + group.phase, group.message
    upstreams = ", ".join(f"{upstream.task_type} {upstream.phase}" for upstream in job.spec.tasks[task_type].depends_on)
    return "NotMade", f"created after {upstreams}" if upstreams else "to be created"
