"""Compares the records of dispatch with the lists of keys and with RQ."""

from collections.abc import Iterator
from datetime import UTC, datetime

from coordinator.doctor.findings import Finding
from coordinator.doctor.inspection import Inspection
from crds.keys import JobKey
from queues import work_kinds
from queues.inspection.rq_record import FUNCTION

Found = Iterator[Finding]
FAILURES = 5
"""A job with a work record is in flight. After this many failed runs in a row it no longer counts as in flight."""


def is_under_way(inspection: Inspection, key: JobKey) -> bool:
    """Return whether a worker is about to reconcile the job."""
    record = inspection.work.records.get(key)
    return record is not None and record.failures < FAILURES


def _work_lists(inspection: Inspection) -> Found:
    """Compare the lists and counts that dispatch uses."""
    work = inspection.work
    if work.ready_count != work.ready_length:
        surplus = work.ready_count - work.ready_length
        yield Finding("wrong-ready-count", "work", f"{surplus:+d} keys counted as ready that are not")
    for lane in sorted(name for name, keys in work.ready.items() if keys and name not in work.turns):
        yield Finding("stuck-tenant", lane or '""', "has ready keys but is not in the list of tenants to serve")
    for key, ends in sorted(work.leases.items()):
        record = work.records.get(key)
        if record is None or record.state != "leased":
            yield Finding("stray-lease", str(key), f"a lease until {_time(ends)} that no worker holds")


def _work_records(inspection: Inspection) -> Found:
    """Find keys that would never become ready again."""
    for key, record in sorted(inspection.work.records.items()):
        match record.state:
            case "ready" if key not in inspection.work.ready.get(work_kinds.lane(record.tenant, record.kind), ()):
                yield Finding("stuck-key", str(key), f"ready since {record.since}, but in no list of ready keys")
            case "delayed" if record.due is None:
                yield Finding("stuck-key", str(key), f"delayed (ready before: {record.since}), but never due")
            case "leased" if record.lease_ends is None:
                yield Finding("lost-lease", str(key), f"leased (token {record.token}), but its lease never ends")
            case "leased" if record.lease_ends is not None and record.lease_ends < inspection.work.now:
                lease = f"its lease (token {record.token}) ended at {_time(record.lease_ends)}"
                yield Finding("stuck-lease", str(key), f"{lease} and was not taken back")
            case "ready" | "delayed" | "leased":
                pass
            case other:
                yield Finding("stuck-key", str(key), f"is in no known state: {other[:20]!r}")


def _rq(inspection: Inspection) -> Found:
    for job in inspection.work.rq:
        if job.function != FUNCTION:
            description = f"names {job.function[:60]!r}" if job.function else "has a record that no worker can read"
            yield Finding("foreign-rq-job", job.id[:80], f"{description} (in RQ: {job.where}); workers refuse it")
        elif job.where == "none":
            yield Finding("orphan-batch", job.id, "a batch that is in no list of RQ, so no worker will take it")
        elif job.where not in ("queue", "intermediate", "started"):
            yield Finding("failed-batch", job.id, f"was not run to its end (in RQ: {job.where})")


def _time(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return str(seconds)


CHECKS = (_rq, _work_lists, _work_records)
