"""Why a job waits, its position, or what it does: as a document, and in sentences.

One rule: the same document is printed for programs.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from coordinator import terminal
from coordinator.follow import deletion, endings, wait_reasons
from coordinator.query.questions import Document
from coordinator.wording import ages, job_details, job_growth, job_state, room_holders
from coordinator.wording.job_details import JobContext
from crds import labels
from crds.torchjob.conditions import DOMAIN_CLOSED, FINISHED, NOT_WHOLE, WAITS_FOR_RANKS, WAITS_FOR_SCHEDULER
from crds.torchjob.status import Hang
from kube.api import Manifest
from reconcilers.plan import not_running_reason
from reconcilers.plan.health import finding
from reconcilers.views import pod_problems

_TRIED = ("NotRunningInTime", WAITS_FOR_SCHEDULER, DOMAIN_CLOSED)
"""The reasons of jobs that were admitted and wait again because of their pods."""
SILENT_SECONDS, SILENT_STEPS = 120.0, 10
"""How long a job that reports is silent before it is worth a hint: seconds, and the time of steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownFacts:
    """What is known around a job, as far as its state asks for it (`coordinator.wording.job_answers`)."""

    objects: JobContext = field(default_factory=JobContext)
    """The objects around a job that is admitted, or is being deleted."""
    place: Document | None = None
    """The position of a job that waits."""
    rest: Document = field(default_factory=dict)
    """Why further workers wait."""
    if_resumed: Document | None = None
    """The forecast for a suspended job."""
    too_small: Sequence[str] = ()
    """Why the nodes no longer hold an admitted job."""
    training: Document = field(default_factory=dict)
    """The reports of the pods."""


def describe(item: Manifest, known: KnownFacts) -> Document:
    """Return the document of a job: the job's own state, and its position if it waits."""
    if deletion.is_deleting(item):
        return describe_deletion(item, known.objects.pods)
    if is_waiting(item):
        return describe_waiting(item, known.place or {"state": "absent"})
    details = job_details.describe(item, known.objects)
    until = details["restarts"].get("notBefore", "")
    now = known.objects.now
    parts = {
        "tooSmall": list(known.too_small),
        "rest": known.rest,
        "silence": describe_silence(item, known.training, now) if now else "",
        "sharing": describe_sharing(known.objects.pods),
    }
    settled = describe_settled(item, details["tasks"], until, known.if_resumed)
    return settled | {name: part for name, part in parts.items() if part}


def is_waiting(item: Manifest) -> bool:
    """Return whether a TorchJob is neither finished, admitted nor suspended."""
    return wait_reasons.is_waiting(item) and not item["spec"].get("suspend")


def describe_settled(
    item: Manifest,
    tasks: Iterable[Document] = (),
    restart_not_before: str = "",
    if_resumed: Document | None = None,
) -> Document:
    """Return the document of a job that does not wait.

    `tasks` are the tasks of `job_details`, for an admitted job that may not run. `restart_not_before` is the end of the
    job's back-off. `if_resumed` is the forecast for a suspended job if it were resumed now.
    """
    status, document = item.get("status") or {}, _job(item)
    phase, admission = document["phase"], status.get("admission") or {}
    if phase in FINISHED:
        reason = _condition(status, phase) or f"the job has {phase.lower()}"
        cause, exit_code = endings.cause_of(item)
        ended = {"reason": cause, "exitCode": exit_code}
        return document | {"state": "finished", "code": phase, "message": reason, **ended}
    if item["spec"].get("suspend"):
        held = f"; the job holds its room until its pods are deleted: {_condition(status, 'Admitted')}"
        pending = held if admission else ""
        message = f"spec.suspend is true; to continue: torchq job resume{pending}{_saving(item)}"
        would = {"ifResumed": if_resumed} if if_resumed else {}
        return document | {"state": "suspended", "code": "Suspended", "message": message} | would
    found = [(task["short"] and phase != "Running", task["task"], each) for task in tasks for each in task["why"]]
    blockers = [{"task": task, **blocker} for blocks, task, blocker in found if blocks]
    blockers.sort(key=lambda blocker: pod_problems.place(blocker["reason"], blocker["message"]))
    missing = [{"task": task, **blocker} for blocks, task, blocker in found if not blocks]
    since = admission.get("admittedAt") or "-"
    reason = _condition(status, "Admitted") or "the job holds room"
    message = f"admitted at {since}, attempt {admission.get('attempt')}: {reason}"
    lacking = wait_reasons.of_pods(item)
    code = lacking[0] if lacking[0] == NOT_WHOLE else blockers[0]["reason"] if blockers else phase or "Admitted"
    if phase == "Running" and status.get("hang"):
        code, message = "Hanging", f"{message}; {describe_hang(status['hang'])}"
    elif ranks := wait_reasons.for_ranks(item):
        code, message = WAITS_FOR_RANKS, f"{message}; {ranks}"
    elif phase == "Running" and lacking[0]:
        code, message = lacking[0], f"{message}; {lacking[1]}"
    message += _bound_to(admission.get("domain"), message, (*blockers, *missing)) + _saving(item)
    backoff = {"restartNotBefore": restart_not_before} if restart_not_before else {}
    pods = {"against": blockers, **({"missing": missing} if missing else {})}
    return document | {"state": "admitted", "code": code, "message": message, **pods, **backoff}


def _bound_to(domain: str | None, message: str, reasons: Iterable[Document]) -> str:
    """Return where the pods of a job have to run if some have no node, unless a message says it already."""
    sentence = not_running_reason.bound_to(domain) if domain else ""
    lacks_nodes = any(each["reason"] == pod_problems.UNSCHEDULABLE for each in reasons)
    return f"; {sentence}" if sentence and lacks_nodes and sentence not in message else ""


def _saving(item: Manifest) -> str:
    """Return that a job was asked to save before its pods end, and how long that may take; empty if it was not."""
    saving = (item.get("status") or {}).get("saving")
    seconds = (item["spec"].get("schedulingPolicy") or {}).get("checkpointSeconds", 0)
    return f"; it was asked to save at {saving['since']} and has {seconds} s at most for that" if saving else ""


def describe_deletion(item: Manifest, pods: Sequence[Manifest]) -> Document:
    """Return the document of a job that is being deleted."""
    return _job(item) | {"state": "deleting", "code": deletion.DELETING, "message": deletion.describe(item, pods)}


def describe_hang(hang: Document) -> str:
    """Return the sentence about a hang in the status of a job, in the form of its condition and its Event."""
    return finding.describe(Hang.model_validate(hang))


def describe_waiting(item: Manifest, place: Document) -> Document:
    """Return the document of a job that waits: its position, or why it is not in the order."""
    item = job_state.without_hold(item)
    queue: Document = (item.get("status") or {}).get("queue") or {}
    since = queue.get("since") or item["metadata"].get("creationTimestamp")
    if_resumed = {"ifResumed": place["ifResumed"]} if place.get("ifResumed") else {}
    document = _job(item) | if_resumed | {"since": since} | _last_try(item)
    times = {name: queue[name] for name in ("notBefore", "parked", "tries") if queue.get(name)}
    match place["state"]:
        case "waiting":
            drained = place.get("code") == "QueueHeld" and queue.get("reason") == "QueueDrained"
            reason = {"code": queue["reason"], "message": queue.get("message") or ""} if drained else {}
            return document | times | place | reason | {"job": document["job"]}
        case "admitted":
            message = "the job was picked and a worker is about to start it"
            return document | place | {"code": "Admitted", "message": message}
    reason = {name: place[name] for name in ("code", "message") if name in place}
    return document | times | _absent(item, queue) | reason | {"state": "absent"}


def _last_try(item: Manifest) -> Document:
    """Return the result of the last admission, if the job did not run."""
    queued = endings.true_condition(item, "Queued")
    return {"lastTry": queued["message"]} if queued.get("reason") in _TRIED else {}


def _absent(item: Manifest, queue: dict[str, Any]) -> Document:
    """Return why a waiting job is not in the order of its queue."""
    if (item["spec"].get("schedulingPolicy") or {}).get("hold"):
        return {"code": "Held", "message": "spec.schedulingPolicy.hold is true; to continue: torchq job resume"}
    if queue.get("parked"):
        reason = queue.get("message") or "the job failed to start too often"
        return {"code": "Parked", "message": f"{reason}; to try again: torchq job resume, or torchq job bump"}
    if queue.get("reason"):
        return {"code": queue["reason"], "message": queue.get("message") or ""}
    return {"code": "New", "message": "the coordinator has not put it into its queue yet"}


def _job(item: Manifest) -> Document:
    metadata = item["metadata"]
    return {
        "job": f"{metadata['namespace']}/{metadata['name']}",
        "uid": metadata["uid"],
        "queue": job_state.queue_of(item),
        "phase": (item.get("status") or {}).get("phase") or "",
    }


def _condition(status: dict[str, Any], kind: str) -> str:
    conditions: list[dict[str, Any]] = status.get("conditions") or []
    return next((str(condition.get("message") or "") for condition in conditions if condition["type"] == kind), "")


def format_why(document: Document) -> str:
    """Format the state of a job: a line with the reason, then lines with details and numbers."""
    return "\n  ".join(map(terminal.one_line, sentences(document)))


def sentences(document: Document) -> Iterator[str]:
    """Yield the state of a job in sentences: the reason first, then details and numbers. Parts of them are words of
    users, which may have control characters."""
    blockers = document.get("against")
    if document["state"] not in ("finished", "suspended", "admitted", "deleting"):
        yield from _why_waiting(document)
        return
    state = "holds its room, but does not run" if blockers else "does not wait"
    yield f"job {document['job']} {state}: {document['code']}"
    yield document["message"]
    for blocker in blockers or document.get("missing", ()):
        if not blockers or not blocker["message"] or blocker["message"] not in document["message"]:
            yield format_blocker(blocker["task"], blocker)
    yield from (f"the nodes no longer hold it: {message}" for message in document.get("tooSmall", ()))
    if until := document.get("restartNotBefore"):
        yield f"back-off until {until}; torchq job restart {document['job']} ends it"
    yield from _if_resumed(document)
    if rest := document.get("rest"):
        yield job_growth.format_rest(rest)
        if rest.get("position"):
            yield _place(rest)
    if document.get("silence"):
        yield document["silence"]
    yield from () if blockers else document.get("sharing", ())


def _why_waiting(document: Document) -> Iterator[str]:
    yield f"job {document['job']} waits in queue {document['queue']}: {document['code']}"
    yield document["message"]
    if document.get("numbers"):
        yield document["numbers"]
    if held := room_holders.format_holders(document):
        yield f"held by {held}"
    if document["state"] == "waiting":
        yield _place(document)
    for name, label in (("lastTry", "its last try:"), ("notBefore", "not before"), ("since", "waiting since")):
        if document.get(name):
            yield f"{label} {document[name]}"
    yield from _if_resumed(document)


def _if_resumed(document: Document) -> Iterator[str]:
    """Format the forecast for a job that its owner or a back-off keeps out of the order."""
    would = document.get("ifResumed")
    if not would:
        return
    if would.get("unknown"):
        yield f"whether it would fit now is not known: {would['unknown']}"
        return
    is_tried = document["code"] in ("BackingOff", "WaitingForScheduler")
    when = "if it were tried again now" if is_tried else "if it were resumed now"
    otherwise = "it could never run" if would["code"] == "ExceedsQuota" else "it would wait"
    verdict = "it would fit" if would["fits"] else f"{otherwise}: {would['code']}"
    yield f"{when}, {verdict}: {would['message']}"
    if would.get("numbers"):
        yield would["numbers"]


def describe_sharing(pods: Iterable[Manifest]) -> list[str]:
    """Return how pods of a job are connected with ports of other jobs on one machine, without repetitions."""
    conditions = (each for pod in pods for each in (pod.get("status") or {}).get("conditions") or ())
    return list(dict.fromkeys(each["message"] for each in conditions if each["type"] == labels.PORT_SHARED))


def describe_silence(item: Manifest, training: Document, now: datetime) -> str:
    """Return the hint that a running job has stopped to report, which is not watched; empty if no hint is due."""
    status, spec = item.get("status") or {}, item["spec"]
    if status.get("phase") != "Running" or (spec.get("health") or {}).get("hangTimeoutSeconds"):
        return ""
    silent, pace = ages.seconds_since(training.get("reportedAt"), now), training.get("stepsPerSecond")
    if silent is None or silent < max(SILENT_SECONDS, SILENT_STEPS / pace if pace else 0.0):
        return ""
    return (
        f"no report for {ages.duration(silent)}: if the training hangs, torchq job restart helps; "
        "spec.health finds that by itself"
    )


def format_blocker(task: str, against: Document) -> str:
    """Format the reasons that keep pods of a task from running."""
    example = f" ({against['pod']})" if against["pod"] else ""
    message = f": {against['message']}" if against["message"] else ""
    return terminal.one_line(f"{task}: {against['pods']} {against['reason']}{example}{message}")


def format_position(document: Document) -> str:
    """Format the position of a job in one line."""
    if document["state"] != "waiting":
        return format_why(document)
    return f"job {document['job']}: {_place(document)}"


def _place(document: Document) -> str:
    place = f"number {document['position']} of {document['of']} in queue {document['queue']}"
    if document.get("code") == "ExceedsQuota":
        return f"{place}, not picked until that changes"
    turn, later = document.get("nextPick"), document.get("pickWithRoom")
    forecast = "not among the picks that can be forecast"
    if turn or later:
        forecast = f"pick {turn} from now" if turn else f"pick {later} once the pool has room"
    return f"{place}, {forecast}"
