"""What a sight of a TorchJob says about the rows of the history.

One rule: the rows follow from the object alone, so sights that are missed, doubled or late make no other rows. Times
are those of the object; `seen` is used only where it has none. No object raises, and every row is bounded.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from crds import holds, integers, labels
from crds.errors import InvalidObject
from crds.holds import ClosedHold
from crds.metadata import LONGEST_UID
from crds.resources.amounts import Amounts
from crds.torchjob import cached_parser, grant
from crds.torchjob.conditions import CANCELLED, FINISHED
from crds.torchjob.status import MOST_RESULT
from history.rows import HoldRow, JobRow, Row, WaitRow
from history.sightings import untrusted, waits
from history.sightings.untrusted import items, mapping, moment, number, text
from history.store import OpenJob

DELETED = "Deleted"
LONGEST_REASON = 128
LONGEST_USER = 256
MOST_CONDITIONS = 16
_ANNOTATIONS = (labels.SUBMITTED_BY, labels.RESTORED, labels.RETRY_AT)
_STATUS = ("phase", "admission", "holds", "attempt", "restartCount", "disruptions", "result", "completionTime")
_KEPT = (*_STATUS, "restoredFrom", "queue")
UNPAID = "unpaid"
"""The field of a trimmed job with the part of its charge that is idle growth."""


def trim_job(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a TorchJob that its rows need."""
    spec, status = mapping(manifest.get("spec")), mapping(manifest.get("status"))
    policy = mapping(spec.get("schedulingPolicy"))
    trimmed: dict[str, Any] = {
        "metadata": untrusted.trim_metadata(manifest, _ANNOTATIONS),
        "spec": {name: spec[name] for name in ("suspend", "cancel") if name in spec}
        | {"schedulingPolicy": {name: policy[name] for name in ("queue", "hold") if name in policy}},
        "status": {name: status[name] for name in _KEPT if name in status}
        | {"conditions": [*map(_trim_condition, items(status.get("conditions"))[:MOST_CONDITIONS])]},
    }
    unpaid = mapping(manifest.get(UNPAID)) or _unpaid(manifest)
    return trimmed | ({UNPAID: dict(unpaid)} if unpaid else {})


def _trim_condition(condition: object) -> dict[str, Any]:
    found = mapping(condition)
    return {name: found.get(name) for name in ("type", "status", "lastTransitionTime")} | {
        "reason": text(found.get("reason"), LONGEST_REASON),
        "message": text(found.get("message"), untrusted.LONGEST_MESSAGE),
    }


def _unpaid(manifest: Mapping[str, Any]) -> Amounts:
    """Return the idle growth in the charge of a job."""
    admission = mapping(mapping(manifest.get("status")).get("admission"))
    if not number(admission.get("idle")):
        return {}
    try:
        job = cached_parser.parse(manifest)
    except InvalidObject:
        return {}
    return grant.unpaid(job.status, holds.bounded(untrusted.amounts(admission.get("charge")))[0], job.spec)


@dataclass(frozen=True, slots=True)
class _Sight:
    """A job as it was seen."""

    job: Mapping[str, Any]
    seen: int
    version: int
    uid: str
    created: int
    closed: tuple[ClosedHold, ...]
    deleted: int | None = None
    """When an unfinished job was deleted."""

    @property
    def status(self) -> Mapping[str, Any]:
        return mapping(self.job.get("status"))

    @property
    def admission(self) -> Mapping[str, Any]:
        return mapping(self.status.get("admission"))

    @property
    def is_finished(self) -> bool:
        return self.status.get("phase") in FINISHED

    @property
    def queue(self) -> str:
        """The queue of its last hold, else the one that it waits in."""
        last = self.closed[-1].queue if self.closed else ""
        return text(self.admission.get("queue")) or text(last) or self.wanted_queue

    @property
    def wanted_queue(self) -> str:
        policy = mapping(mapping(self.job.get("spec")).get("schedulingPolicy"))
        return text(policy.get("queue")) or text(mapping(self.job["metadata"]).get("namespace"))

    @property
    def condition(self) -> Mapping[str, Any]:
        """The condition of its phase."""
        return waits.condition(self.status, str(self.status.get("phase")))

    @property
    def ended(self) -> int | None:
        """When it finished or was deleted; None if it did neither."""
        if not self.is_finished:
            return None if self.deleted is None else max(self.deleted, self.created)
        ended = moment(self.status.get("completionTime")) or moment(self.condition.get("lastTransitionTime"))
        return max(self.seen if ended is None else ended, self.created)


def of_job(job: Mapping[str, Any], seen: int) -> list[Row]:
    """Return all rows of a job, as `trim_job` returns it, that was seen at a time."""
    return _rows(_sight(job, seen))


def of_deleted_job(job: Mapping[str, Any], seen: int, deleted: int) -> list[Row]:
    """Return all rows of a job that does not exist any more, from the last sight of it."""
    sight = _sight(job, seen)
    return _rows(sight if sight is None or sight.deleted is not None else replace(sight, deleted=deleted))


def _sight(job: Mapping[str, Any], seen: int) -> _Sight | None:
    """Return the sight of a job; None if it has no rows: `torchq restore` creates a finished job without its end, which
    is filed under its first uid later."""
    metadata, status, spec = mapping(job.get("metadata")), mapping(job.get("status")), mapping(job.get("spec"))
    restored = mapping(status.get("restoredFrom"))
    uid = text(restored.get("uid"), LONGEST_UID) or text(metadata.get("uid"), LONGEST_UID)
    is_new = not status.get("attempt") and not status.get("completionTime")
    if not uid or (is_new and spec.get("suspend") is True and labels.RESTORED in mapping(metadata.get("annotations"))):
        return None
    created = moment(restored.get("created")) or moment(metadata.get("creationTimestamp"))
    return _Sight(
        job=job,
        seen=seen,
        version=integers.parse(metadata.get("resourceVersion"), 0),
        uid=uid,
        created=seen if created is None else created,
        closed=tuple(_closed(items(status.get("holds"))[: holds.MOST])),
        deleted=moment(metadata.get("deletionTimestamp")),
    )


def _closed(found: Iterable[Any]) -> Iterator[ClosedHold]:
    for each in found:
        try:
            hold = ClosedHold.model_validate(each)
        except ValidationError:
            continue
        if hold.from_.tzinfo and hold.to.tzinfo:
            yield hold


def _rows(sight: _Sight | None) -> list[Row]:
    if sight is None:
        return []
    held = [_hold_row(sight, hold) for hold in sight.closed]
    return [_job_row(sight), *held, *_current_hold(sight), *_wait_rows(sight)]


def _wait_rows(sight: _Sight) -> list[WaitRow]:
    """Return from when on a job waits or does not. None of these times is before the creation, by whatever clock."""
    point = waits.find(sight.job, sight.seen)
    if point is None:
        return []
    start = max(point.at, sight.created)
    end, queue = (None, sight.wanted_queue) if point.waits else (start, sight.queue)
    row = WaitRow(uid=sight.uid, start=start, version=sight.version, queue=queue, end=end)
    if not waits.has_waited_since_creation(sight.job):
        return [row]
    # The row of any sight of the job before its admission replaces the row of the version 0.
    return [WaitRow(uid=sight.uid, start=sight.created, version=0, queue=sight.wanted_queue), row]


def _job_row(sight: _Sight) -> JobRow:
    metadata, status = mapping(sight.job["metadata"]), sight.status
    result = status.get("result")
    outcome, reason, message = _end(sight)
    return JobRow(
        uid=sight.uid,
        version=sight.version,
        namespace=text(metadata.get("namespace")),
        name=text(metadata.get("name")),
        queue=sight.queue,
        user=text(mapping(metadata.get("annotations")).get(labels.SUBMITTED_BY), LONGEST_USER),
        created=sight.created,
        ended=sight.ended,
        outcome=outcome,
        is_approximate=sight.is_finished and moment(status.get("completionTime")) is None,
        reason=reason,
        message=message,
        restarts=number(status.get("restartCount")),
        disruptions=number(status.get("disruptions")),
        result=text(result, MOST_RESULT) if isinstance(result, str) and len(result) <= MOST_RESULT else "",
        seen=sight.seen,
    )


def _end(sight: _Sight) -> tuple[str, str, str]:
    """Return the outcome of a job, empty if it has not ended, with the reason and the message."""
    condition, phase = sight.condition, str(sight.status.get("phase"))
    reason = text(condition.get("reason"), LONGEST_REASON)
    message = text(condition.get("message"), untrusted.LONGEST_MESSAGE)
    if sight.is_finished:
        if (phase, reason) != ("Failed", CANCELLED):
            return phase, reason, message
        state = _waiting_state(sight)
        return CANCELLED, reason, f"cancelled while it {state}" if state else message
    if sight.ended is not None:
        return DELETED, DELETED, f"deleted while it {_waiting_state(sight) or 'held room'}"
    queue = mapping(sight.status.get("queue"))
    if phase == "Queued" and queue.get("reason"):
        reason = text(queue["reason"], LONGEST_REASON)
        message = text(queue.get("message"), untrusted.LONGEST_MESSAGE)
    return "", reason, message


def _waiting_state(sight: _Sight) -> str:
    """Return what a job did that held no room at its end; empty if it held room."""
    if sight.admission:
        return ""
    ended = sight.ended
    if sight.status.get("phase") == "Suspended" or waits.transition(sight.status, "Suspended") == ended:
        return "was suspended"
    reason = text(mapping(sight.status.get("queue")).get("reason"), LONGEST_REASON)
    return f"waited ({reason})" if reason else "waited"


def _current_hold(sight: _Sight) -> list[HoldRow]:
    """Return the hold that is no closed hold: the open one; one that ends with the deletion of the job; or one that a
    worker of an older version has ended with the job."""
    hold, ended = _admitted(sight), moment(sight.status.get("completionTime"))
    if hold is None:
        return []
    if not sight.is_finished:
        row, end = _hold_row(sight, hold), sight.ended
        return [replace(row, end=None if end is None else max(row.start, end), ended="" if end is None else DELETED)]
    if any(each.attempt == hold.attempt and (ended is None or _second(each.to) >= ended) for each in sight.closed):
        return []
    row, end = _hold_row(sight, hold), sight.seen if sight.ended is None else sight.ended
    return [replace(row, end=max(row.start, end), ended=_end(sight)[1], is_approximate=True)]


def _admitted(sight: _Sight) -> ClosedHold | None:
    """Return what a job holds, without an end; None if it holds nothing, or nobody can tell what."""
    admission = sight.admission
    attempt = number(admission.get("attempt"))
    ends = [hold.to for hold in sight.closed if hold.attempt == attempt]
    since = max(ends) if ends else _time(admission.get("admittedAt"))
    charge, others = holds.bounded(untrusted.amounts(admission.get("charge")))
    fields = {"number": holds.next_number(sight.closed, attempt), "attempt": attempt, "ended": ""}
    fields |= {"from": since, "to": since, "running": _time(_running(sight))}
    fields |= {"queue": text(admission.get("queue")), "workers": number(admission.get("workers")) or None}
    fields |= {"charge": charge, "unpaid": dict(untrusted.amounts(sight.job.get(UNPAID))), "others": others}
    try:
        return ClosedHold.model_validate(fields)
    except ValidationError:
        return None


def _running(sight: _Sight) -> object:
    """Return since when a job runs; a worker of an older version wrote that into the condition alone."""
    found = sight.admission.get("running")
    return sight.condition.get("lastTransitionTime") if not found and sight.status.get("phase") == "Running" else found


def _hold_row(sight: _Sight, hold: ClosedHold) -> HoldRow:
    start = _second(hold.from_)
    return HoldRow(
        uid=sight.uid,
        number=hold.number,
        version=sight.version,
        numbers=hold.numbers,
        queue=text(hold.queue),
        attempt=hold.attempt,
        workers=hold.workers,
        start=start,
        running=None if hold.running is None else _second(hold.running),
        end=max(start, _second(hold.to)),
        ended=text(hold.ended),
        charge={text(name): amount for name, amount in hold.charge.items()},
        unpaid={text(name): amount for name, amount in hold.unpaid.items()},
        seconds={text(name): int(total) for name, total in hold.seconds.items()},
        unpaid_seconds={text(name): int(total) for name, total in hold.unpaid_seconds.items()},
        others=hold.others,
        is_approximate=_is_behind_a_gap(hold, sight.closed),
    )


def _is_behind_a_gap(hold: ClosedHold, closed: tuple[ClosedHold, ...]) -> bool:
    """Return whether the hold before one of these is missing: a worker of an older version wrote none."""
    known = [span for each in closed for span in holds.numbers_of(each)]
    return any(
        first > 1 and not any(low <= first - 1 <= high for low, high in known) for first, _ in holds.numbers_of(hold)
    )


def _time(value: object) -> datetime | None:
    seconds = moment(value)
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def _second(time: datetime) -> int:
    return max(0, int(time.timestamp()))


def of_lost_job(open_job: OpenJob, until: int = 0) -> list[Row]:
    """Return the rows that end a job that is gone, though no recorder has seen its deletion: it is charged to the time
    `until` which everything was recorded, and to the last sight of it at least."""
    row = open_job.row
    end = max(row.seen, until, row.created)
    ended = replace(row, ended=end, outcome=DELETED, is_approximate=True, reason=DELETED, message="deleted")
    return [ended, *(_cut(hold, end, row.version, DELETED) for hold in open_job.holds)]


def of_ended_holds(open_job: OpenJob, job: Mapping[str, Any], seen: int) -> list[Row]:
    """Return the rows that end the open holds of the store which a job that was seen does not have any more: workers of
    an older version end a hold without a trace. The next hold ends it, else the condition of the job's phase."""
    sight = _sight(job, seen)
    if sight is None or sight.uid != open_job.row.uid:
        return []
    present = [*(_hold_row(sight, hold) for hold in sight.closed), *_current_hold(sight)]
    known = [span for hold in sight.closed for span in holds.numbers_of(hold)]
    known += [(row.number, row.number) for row in present]
    lost = [hold for hold in open_job.holds if not any(low <= hold.number <= high for low, high in known)]
    changed = sight.ended if sight.is_finished else moment(sight.condition.get("lastTransitionTime"))
    rows: list[Row] = []
    for hold in lost:
        later = [row.start for row in present if row.start > hold.start]
        end = min(later) if later else seen if changed is None else changed
        rows.append(_cut(hold, end, sight.version, ""))
    return rows


def _cut(hold: HoldRow, end: int, version: int, ended: str) -> HoldRow:
    return replace(hold, version=version, end=max(hold.start, end), ended=ended, is_approximate=True)
