"""What commands say in sentences: why a job waits, where it stands, how everything does.

One rule: pure; the same document is printed for programs.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from coordinator.cli import columns, output
from coordinator.query.documents import Document
from crds.torchjob.conditions import FINISHED
from kube.api import Manifest

LABEL = 14


def waits(item: Manifest) -> bool:
    """Whether a TorchJob waits for room, or could."""
    status = item.get("status") or {}
    return status.get("phase") not in FINISHED and not status.get("admission") and not item["spec"].get("suspend")


def settled(
    item: Manifest,
    tasks: Iterable[Document] = (),
    restart_not_before: str = "",
    if_resumed: Document | None = None,
) -> Document:
    """A job that does not wait, and what it does instead; `tasks` as in `details`, if it should run but may not;
    `restart_not_before` until when it backs off, if it does; `if_resumed`: what would become of it if it were
    resumed."""
    status, found = item.get("status") or {}, _job(item)
    phase, admission = found["phase"], status.get("admission") or {}
    if phase in FINISHED:
        said = _condition(status, phase) or f"it {phase.lower()}"
        return found | {"state": "finished", "code": phase, "message": said}
    if item["spec"].get("suspend"):
        going = f"; until its pods are gone it holds its room: {_condition(status, 'Admitted')}" if admission else ""
        message = f"spec.suspend is true: torchq job resume{going}"
        would = {"ifResumed": if_resumed} if if_resumed else {}
        return found | {"state": "suspended", "code": "Suspended", "message": message} | would
    against = [{"task": task["task"], **each} for task in tasks for each in task["why"]] if phase != "Running" else []
    since = admission.get("admittedAt") or "-"
    said = _condition(status, "Admitted") or "it holds room"
    message = f"admitted at {since}, attempt {admission.get('attempt')}: {said}"
    code = against[0]["reason"] if against else phase or "Admitted"
    told = {"restartNotBefore": restart_not_before} if restart_not_before else {}
    return found | {"state": "admitted", "code": code, "message": message, "against": against, **told}


def waiting(item: Manifest, place: Document) -> Document:
    """A job that waits: where it stands, or why it is not in the order."""
    queue: Document = (item.get("status") or {}).get("queue") or {}
    given = {"ifResumed": place["ifResumed"]} if place.get("ifResumed") else {}
    found = (
        _job(item)
        | given
        | {"since": queue.get("since") or item["metadata"].get("creationTimestamp")}
        | _last_try(item)
    )
    told = {name: queue[name] for name in ("notBefore", "parked", "tries") if queue.get(name)}
    match place["state"]:
        case "waiting":
            drained = place.get("code") == "QueueHeld" and queue.get("reason") == "QueueDrained"
            said = {"code": queue["reason"], "message": queue.get("message") or ""} if drained else {}
            return found | told | place | said | {"job": found["job"]}
        case "admitted":
            return found | place | {"code": "Admitted", "message": "its turn has come: a worker is about to start it"}
    said = {name: place[name] for name in ("code", "message") if name in place}
    return found | told | _absent(item, queue) | said | {"state": "absent"}


def _last_try(item: Manifest) -> Document:
    """What became of it when it was admitted last, if it did not run in time."""
    conditions: list[Document] = (item.get("status") or {}).get("conditions") or []
    now = next((each for each in conditions if (each["type"], each["status"]) == ("Queued", "True")), {})
    return {"lastTry": now["message"]} if now.get("reason") == "NotRunningInTime" else {}


def _absent(item: Manifest, queue: dict[str, Any]) -> Document:
    """Why a waiting job is in no order."""
    if (item["spec"].get("schedulingPolicy") or {}).get("hold"):
        return {"code": "Held", "message": "its owner holds it: torchq job resume"}
    if queue.get("parked"):
        said = queue.get("message") or "it failed to start too often"
        return {"code": "Parked", "message": f"{said}: torchq job resume, or torchq job bump"}
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
    return next((str(each.get("message") or "") for each in conditions if each["type"] == kind), "")


def why(found: Document) -> str:
    """One line of what, one of numbers."""
    if found.get("against"):
        lines = [f"job {found['job']} holds its room, but does not run: {found['code']}", f"  {found['message']}"]
        more = (each for each in found["against"] if not each["message"] or each["message"] not in found["message"])
        return "\n".join([*lines, *(f"  {short(each['task'], each)}" for each in more), *_backoff(found)])
    if found["state"] in ("finished", "suspended", "admitted"):
        lines = [f"job {found['job']} does not wait: {found['code']}", f"  {found['message']}"]
        return "\n".join([*lines, *_backoff(found), *_if_resumed(found)])
    lines = [f"job {found['job']} waits in queue {found['queue']}: {found['code']}", f"  {found['message']}"]
    if found.get("numbers"):
        lines.append(f"  {found['numbers']}")
    if found["state"] == "waiting":
        lines.append(f"  {_place(found)}")
    lines += [f"  its last try: {found['lastTry']}"] if found.get("lastTry") else []
    lines += [f"  {word} {found[name]}" for name, word in _TIMES if found.get(name)]
    return "\n".join([*lines, *_if_resumed(found)])


def _if_resumed(found: Document) -> list[str]:
    """What would become of a job that its owner, or a back-off, keeps out of the order."""
    would = found.get("ifResumed")
    if not would:
        return []
    when = "if it were tried again now" if found["code"] == "BackingOff" else "if it were resumed now"
    if would.get("unknown"):
        return [f"  whether it would fit now is not known: {would['unknown']}"]
    kept = "it could never run" if would["code"] == "ExceedsQuota" else "it would wait"
    said = "it would fit" if would["fits"] else f"{kept}: {would['code']}"
    numbers = [f"  {would['numbers']}"] if would.get("numbers") else []
    return [f"  {when}, {said}: {would['message']}", *numbers]


def _backoff(found: Document) -> list[str]:
    until = found.get("restartNotBefore")
    return [f"  back-off until {until}; torchq job restart {found['job']} ends it"] if until else []


def short(task: str, against: Document) -> str:
    """A sentence for what keeps pods of a task from running."""
    example = f" ({against['pod']})" if against["pod"] else ""
    said = f": {against['message']}" if against["message"] else ""
    return f"{task}: {against['pods']} {against['reason']}{example}{said}"


_TIMES = (("notBefore", "not before"), ("since", "waiting since"))


def position(found: Document) -> str:
    """One line."""
    if found["state"] != "waiting":
        return why(found)
    return f"job {found['job']}: {_place(found)}"


def _place(found: Document) -> str:
    if found.get("code") == "ExceedsQuota":
        return f"number {found['position']} of {found['of']} in queue {found['queue']}, not picked until that changes"
    turn, later = found.get("nextPick"), found.get("pickWithRoom")
    foretold = "not among the picks that can be foretold"
    if turn or later:
        foretold = f"pick {turn} from now" if turn else f"pick {later} once the pool has room"
    return f"number {found['position']} of {found['of']} in queue {found['queue']}, {foretold}"


def summary(lease: Document, numbers: Document, rates: Document) -> Document:
    """Lease, numbers and rates in one document; `trouble` lists what is wrong."""
    leader = lease.get("leader", numbers.get("leader", ""))
    workers = numbers.get("workers")
    trouble = {
        "API server": lease["apiServer"],
        "queues": numbers.get("redis", ""),
        "coordinator": numbers.get("failing", "") or ("" if leader else "no coordinator leads"),
        "workers": "no worker is alive" if workers == {} else "",
    }
    found = {name: value for name, value in numbers.items() if name not in ("redis", "failing", "leader")}
    return {
        "leader": leader,
        "renewedSecondsAgo": lease.get("renewedSecondsAgo"),
        **found,
        "rates": rates,
        "trouble": {name: what for name, what in trouble.items() if what},
    }


def rates(before: Document, after: Document) -> Document:
    """Picks and reconciles a second between two looks; nothing if they are of one moment or of two Redis."""
    seconds = after.get("at", 0.0) - before.get("at", 0.0)
    counted = {name: after.get(name, 0) - before.get(name, 0) for name in ("picks", "reconciles")}
    if seconds <= 0 or any(each < 0 for each in counted.values()):
        return {}
    return {f"{name}PerSecond": round(each / seconds, 1) for name, each in counted.items()}


def status(found: Document) -> str:
    """A line for each thing."""
    lines = [("Cluster", found["cluster"])] if "cluster" in found else []
    lines += [("Leader", _leader(found)), ("Workers", _workers(found))]
    if "jobs" in found:
        lines.append(("Jobs", f"{found['jobs']['waiting']} waiting, {found['jobs']['admitted']} admitted"))
        lines.append(("Work", ", ".join(f"{count} {name}" for name, count in found["work"].items())))
    if found["rates"]:
        rate = found["rates"]
        lines.append(("Rates", f"{rate['picksPerSecond']} picks/s, {rate['reconcilesPerSecond']} reconciles/s"))
    if found.get("waits"):
        lines.append(("Waits", _waits(found["waits"])))
    for name in ("queues", "API server", "coordinator", "workers"):
        said = found["trouble"].get(name)
        if said or name in ("queues", "API server"):
            lines.append((f"{name[0].upper()}{name[1:]}" + "!" * bool(said), said or "ok"))
    return "\n".join(f"{title + ':':<{LABEL}}{text}" for title, text in lines)


def _leader(found: Document) -> str:
    epoch = f" (epoch {found['epoch']})" if found.get("epoch") else ""
    return f"{found['leader']}{epoch}" if found["leader"] else "none"


def _workers(found: Document) -> str:
    workers = found.get("workers")
    return "unknown" if workers is None else f"{len(workers)} alive, {sum(workers.values())} threads"


def _waits(waits: Document) -> str:
    if not waits["admissions"]:
        return "nothing was admitted yet"
    middle, most = (output.duration(waits[name]) for name in ("p50Seconds", "p95Seconds"))
    return f"p50 {middle}, p95 {most} of the last {waits['admissions']} first admissions"


def since(stamp: str | None, now: datetime) -> float | None:
    """Seconds since a moment, if there was one."""
    return max(0.0, round((now - datetime.fromisoformat(stamp)).total_seconds(), 3)) if stamp else None
