"""Texts of commands: why a job waits, its position, and the health of the system.

One rule: pure; the same document is printed for programs.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from coordinator.cli import columns, job_growth, output
from coordinator.follow import deletion, wait_reasons
from coordinator.query.documents import Document
from crds import timestamps
from crds.torchjob.conditions import FINISHED
from crds.torchjob.status import Hang
from kube.api import Manifest
from reconcilers.plan.health import finding
from reconcilers.plan.health.unfinished import WAITS_FOR_RANKS

LABEL = 14
SILENT_SECONDS, SILENT_STEPS = 120.0, 10
"""How long a job that reports is silent before it is worth a hint: seconds, and the time of steps."""


def is_waiting(item: Manifest) -> bool:
    """Return whether a TorchJob is neither finished, admitted nor suspended."""
    status = item.get("status") or {}
    return status.get("phase") not in FINISHED and not status.get("admission") and not item["spec"].get("suspend")


def describe_settled(
    item: Manifest,
    tasks: Iterable[Document] = (),
    restart_not_before: str = "",
    if_resumed: Document | None = None,
) -> Document:
    """Return the document of a job that does not wait.

    `tasks` are those of `job_details`, for an admitted job that may not run. `restart_not_before` is the end of the
    job's back-off. `if_resumed` is the forecast for a suspended job if it were resumed now.
    """
    status, document = item.get("status") or {}, _job(item)
    phase, admission = document["phase"], status.get("admission") or {}
    if phase in FINISHED:
        reason = _condition(status, phase) or f"the job has {phase.lower()}"
        return document | {"state": "finished", "code": phase, "message": reason}
    if item["spec"].get("suspend"):
        pending = (
            f"; the job holds its room until its pods are deleted: {_condition(status, 'Admitted')}"
            if admission
            else ""
        )
        message = f"spec.suspend is true; to continue: torchq job resume{pending}{_saving(item)}"
        would = {"ifResumed": if_resumed} if if_resumed else {}
        return document | {"state": "suspended", "code": "Suspended", "message": message} | would
    found = [(task["short"] and phase != "Running", task["task"], each) for task in tasks for each in task["why"]]
    blockers = [{"task": task, **blocker} for blocks, task, blocker in found if blocks]
    missing = [{"task": task, **blocker} for blocks, task, blocker in found if not blocks]
    since = admission.get("admittedAt") or "-"
    reason = _condition(status, "Admitted") or "the job holds room"
    message = f"admitted at {since}, attempt {admission.get('attempt')}: {reason}"
    code = blockers[0]["reason"] if blockers else phase or "Admitted"
    if phase == "Running" and status.get("hang"):
        code, message = "Hanging", f"{message}; {describe_hang(status['hang'])}"
    elif ranks := wait_reasons.for_ranks(item):
        code, message = WAITS_FOR_RANKS, f"{message}; {ranks}"
    message += _saving(item)
    backoff = {"restartNotBefore": restart_not_before} if restart_not_before else {}
    pods = {"against": blockers, **({"missing": missing} if missing else {})}
    return document | {"state": "admitted", "code": code, "message": message, **pods, **backoff}


def _saving(item: Manifest) -> str:
    """Return that a job was asked to save before its pods end, and how long that may take; empty if it was not."""
    saving = (item.get("status") or {}).get("saving")
    seconds = (item["spec"].get("schedulingPolicy") or {}).get("checkpointSeconds", 0)
    return f"; it was asked to save at {saving['since']} and has {seconds} s at most for that" if saving else ""


def describe_deletion(item: Manifest, pods: Sequence[Manifest]) -> Document:
    """Return the document of a job that is being deleted."""
    return _job(item) | {"state": "deleting", "code": deletion.DELETING, "message": deletion.describe(item, pods)}


def describe_hang(hang: Document) -> str:
    """Return the sentence about a hang in the status of a job, as its condition and its Event have it."""
    return finding.describe(Hang.model_validate(hang))


def describe_waiting(item: Manifest, place: Document) -> Document:
    """Return the document of a job that waits: its position, or why it is not in the order."""
    queue: Document = (item.get("status") or {}).get("queue") or {}
    if_resumed = {"ifResumed": place["ifResumed"]} if place.get("ifResumed") else {}
    document = (
        _job(item)
        | if_resumed
        | {"since": queue.get("since") or item["metadata"].get("creationTimestamp")}
        | _last_try(item)
    )
    times = {name: queue[name] for name in ("notBefore", "parked", "tries") if queue.get(name)}
    match place["state"]:
        case "waiting":
            drained = place.get("code") == "QueueHeld" and queue.get("reason") == "QueueDrained"
            reason = {"code": queue["reason"], "message": queue.get("message") or ""} if drained else {}
            return document | times | place | reason | {"job": document["job"]}
        case "admitted":
            return (
                document
                | place
                | {"code": "Admitted", "message": "the job was picked and a worker is about to start it"}
            )
    reason = {name: place[name] for name in ("code", "message") if name in place}
    return document | times | _absent(item, queue) | reason | {"state": "absent"}


def _last_try(item: Manifest) -> Document:
    """Return the result of the last admission, if the job did not run in time."""
    conditions: list[Document] = (item.get("status") or {}).get("conditions") or []
    now = next(
        (condition for condition in conditions if (condition["type"], condition["status"]) == ("Queued", "True")), {}
    )
    return {"lastTry": now["message"]} if now.get("reason") == "NotRunningInTime" else {}


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
        "queue": columns.queue_of(item),
        "phase": (item.get("status") or {}).get("phase") or "",
    }


def _condition(status: dict[str, Any], kind: str) -> str:
    conditions: list[dict[str, Any]] = status.get("conditions") or []
    return next((str(condition.get("message") or "") for condition in conditions if condition["type"] == kind), "")


def format_why(document: Document) -> str:
    """Format the state of a job: a line with the reason, then lines with details and numbers."""
    if document.get("against"):
        lines = [
            f"job {document['job']} holds its room, but does not run: {document['code']}",
            f"  {document['message']}",
        ]
        more = (
            blocker
            for blocker in document["against"]
            if not blocker["message"] or blocker["message"] not in document["message"]
        )
        return "\n".join(
            [
                *lines,
                *(f"  {format_blocker(blocker['task'], blocker)}" for blocker in more),
                *_too_small(document),
                *_backoff(document),
                *_rest(document),
            ]
        )
    if document["state"] in ("finished", "suspended", "admitted", "deleting"):
        lines = [f"job {document['job']} does not wait: {document['code']}", f"  {document['message']}"]
        missing = [f"  {format_blocker(each['task'], each)}" for each in document.get("missing", ())]
        parts = (_too_small, _backoff, _if_resumed, _rest, _silence)
        return "\n".join([*lines, *missing, *(line for part in parts for line in part(document))])
    lines = [
        f"job {document['job']} waits in queue {document['queue']}: {document['code']}",
        f"  {document['message']}",
    ]
    if document.get("numbers"):
        lines.append(f"  {document['numbers']}")
    if document["state"] == "waiting":
        lines.append(f"  {_place(document)}")
    lines += [f"  its last try: {document['lastTry']}"] if document.get("lastTry") else []
    lines += [f"  {label} {document[name]}" for name, label in _TIMES if document.get(name)]
    return "\n".join([*lines, *_if_resumed(document)])


def _if_resumed(document: Document) -> list[str]:
    """Format the forecast for a job that its owner or a back-off keeps out of the order."""
    would = document.get("ifResumed")
    if not would:
        return []
    when = "if it were tried again now" if document["code"] == "BackingOff" else "if it were resumed now"
    if would.get("unknown"):
        return [f"  whether it would fit now is not known: {would['unknown']}"]
    otherwise = "it could never run" if would["code"] == "ExceedsQuota" else "it would wait"
    verdict = "it would fit" if would["fits"] else f"{otherwise}: {would['code']}"
    numbers = [f"  {would['numbers']}"] if would.get("numbers") else []
    return [f"  {when}, {verdict}: {would['message']}", *numbers]


def _too_small(document: Document) -> list[str]:
    """Format why the nodes of now can no longer hold an admitted job."""
    return [f"  the nodes no longer hold it: {message}" for message in document.get("tooSmall", ())]


def _silence(document: Document) -> list[str]:
    return [f"  {document['silence']}"] if document.get("silence") else []


def describe_silence(item: Manifest, training: Document, now: datetime) -> str:
    """Return the hint that a running job has stopped to report, which nobody watches; empty if there is none."""
    status, spec = item.get("status") or {}, item["spec"]
    if status.get("phase") != "Running" or (spec.get("health") or {}).get("hangTimeoutSeconds"):
        return ""
    silent, pace = seconds_since(training.get("reportedAt"), now), training.get("stepsPerSecond")
    if silent is None or silent < max(SILENT_SECONDS, SILENT_STEPS / pace if pace else 0.0):
        return ""
    return (
        f"no report for {output.duration(silent)}: if the training hangs, torchq job restart helps; "
        "spec.health finds that by itself"
    )


def _rest(document: Document) -> list[str]:
    """Format how many workers a job has, and why and where the rest waits."""
    rest = document.get("rest")
    if not rest:
        return []
    return [f"  {job_growth.format_rest(rest)}", *([f"  {_place(rest)}"] if rest.get("position") else [])]


def _backoff(document: Document) -> list[str]:
    until = document.get("restartNotBefore")
    return [f"  back-off until {until}; torchq job restart {document['job']} ends it"] if until else []


def format_blocker(task: str, against: Document) -> str:
    """Format what keeps pods of a task from running."""
    example = f" ({against['pod']})" if against["pod"] else ""
    message = f": {against['message']}" if against["message"] else ""
    return f"{task}: {against['pods']} {against['reason']}{example}{message}"


_TIMES = (("notBefore", "not before"), ("since", "waiting since"))


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


def summary(lease: Document, numbers: Document, rates: Document) -> Document:
    """Return Lease, numbers and rates in one document; `trouble` maps the name of each failing part to its problem."""
    leader = lease.get("leader", numbers.get("leader", ""))
    workers = numbers.get("workers")
    trouble = {
        "API server": lease["apiServer"],
        "queues": numbers.get("redis", ""),
        "coordinator": numbers.get("failing", "") or ("" if leader else "no coordinator leads"),
        "workers": "; ".join((*["no worker is alive"] * (workers == {}), *numbers.get("idleWorkers", ()))),
    }
    figures = {name: value for name, value in numbers.items() if name not in ("redis", "failing", "leader")}
    return {
        "leader": leader,
        "leaderVersion": lease.get("leaderVersion", ""),
        "renewedSecondsAgo": lease.get("renewedSecondsAgo"),
        **figures,
        "rates": rates,
        "trouble": {name: problem for name, problem in trouble.items() if problem},
    }


def rates(before: Document, after: Document) -> Document:
    """Return picks and reconciles per second between two readings. Readings of the same moment, or of different Redis
    servers, give no rates."""
    seconds = after.get("at", 0.0) - before.get("at", 0.0)
    counted = {name: after.get(name, 0) - before.get(name, 0) for name in ("picks", "reconciles")}
    if seconds <= 0 or any(count < 0 for count in counted.values()):
        return {}
    return {f"{name}PerSecond": round(count / seconds, 1) for name, count in counted.items()}


def format_status(document: Document) -> str:
    """Format the health of the system, one line per part."""
    lines = [("Cluster", document["cluster"])] if "cluster" in document else []
    lines += [("Leader", _leader(document)), ("Workers", _workers(document))]
    if "jobs" in document:
        lines.append(("Jobs", f"{document['jobs']['waiting']} waiting, {document['jobs']['admitted']} admitted"))
        lines.append(("Work", ", ".join(f"{count} {name}" for name, count in document["work"].items())))
    if document["rates"]:
        rate = document["rates"]
        lines.append(("Rates", f"{rate['picksPerSecond']} picks/s, {rate['reconcilesPerSecond']} reconciles/s"))
    if document.get("waits"):
        lines.append(("Waits", _waits(document["waits"])))
    for name in ("queues", "API server", "coordinator", "workers"):
        trouble = document["trouble"].get(name)
        if trouble or name in ("queues", "API server"):
            lines.append((f"{name[0].upper()}{name[1:]}" + "!" * bool(trouble), trouble or "ok"))
    return "\n".join(f"{title + ':':<{LABEL}}{text}" for title, text in lines)


def _leader(document: Document) -> str:
    names = {"epoch": document.get("epoch"), "version": document.get("leaderVersion")}
    known = ", ".join(f"{name} {value}" for name, value in names.items() if value)
    return f"{document['leader']}{f' ({known})' if known else ''}" if document["leader"] else "none"


def _workers(document: Document) -> str:
    workers = document.get("workers")
    if workers is None:
        return "unknown"
    versions = sorted(Counter(document.get("workerVersions", {}).values()).items())
    mixed = ", ".join(f"{count} of version {version or 'unknown'}" for version, count in versions)
    return f"{len(workers)} alive, {sum(workers.values())} threads" + (f" ({mixed})" if len(versions) > 1 else "")


def _waits(waits: Document) -> str:
    if not waits["admissions"]:
        return "nothing was admitted yet"
    middle, most = (output.duration(waits[name]) for name in ("p50Seconds", "p95Seconds"))
    return f"p50 {middle}, p95 {most} of the last {waits['admissions']} first admissions"


def seconds_since(stamp: str | None, now: datetime) -> float | None:
    """Return the seconds since a timestamp; None without a timestamp."""
    return max(0.0, round((now - timestamps.parse(stamp)).total_seconds(), 3)) if stamp else None
