"""The rows that sights of a job give."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crds import holds, labels, timestamps
from crds.torchjob.status import Admission, TorchJobStatus
from crds.torchjob.torchjob import TorchJob
from history.rows import HoldRow, JobRow, Row, WaitRow
from history.sightings import jobs
from history.store import JobQuery, OpenJob, Span
from reconcilers.plan import closed_holds, status
from tests.doubles.memory_history import MemoryHistory
from tests.support.reconcilers.builders import ADMISSION, NOW, UID, job, manifest
from tests.support.reconcilers.builders import status as status_of

SEEN = int(NOW.timestamp())
CREATED = SEEN - 245
ALL = Span(0, 2**40)
HOLD = {
    "number": 1,
    "queue": "team",
    "attempt": 1,
    "charge": {"cpu": 3000},
    "from": "2026-01-02T03:00:00Z",
    "to": "2026-01-02T03:02:00Z",
    "ended": "Suspended",
}
RUNNING = status_of("Running", admission=ADMISSION | {"running": "2026-01-02T03:01:00Z"})


def sight(**fields: Any) -> dict[str, Any]:
    """Return a trimmed job with a status, and with fields of its spec or `metadata`."""
    found = manifest(status=fields.pop("status", {}), annotations=fields.pop("annotations", None))
    found["metadata"] |= fields.pop("metadata", {})
    return jobs.trim_job(found | {"spec": found["spec"] | fields})


def job_row(rows: Sequence[Row]) -> JobRow:
    """Return the row of the job."""
    return next(row for row in rows if isinstance(row, JobRow))


def hold_rows(rows: Sequence[Row]) -> list[HoldRow]:
    """Return the rows of its holds."""
    return [row for row in rows if isinstance(row, HoldRow)]


def ended(phase: str, reason: str, **fields: Any) -> dict[str, Any]:
    """Return the status of a job that has ended."""
    found = status_of(phase, completionTime="2026-01-02T03:04:00Z", **fields)
    found["conditions"][0] |= {"reason": reason, "message": "its message", "lastTransitionTime": "2026-01-02T03:04:00Z"}
    return found


def test_a_running_job_has_one_open_hold_from_its_admission() -> None:
    row, hold, *_ = jobs.of_job(sight(status=RUNNING, annotations={labels.SUBMITTED_BY: "ann"}), SEEN)
    assert isinstance(row, JobRow)
    assert (row.uid, row.version, row.queue, row.user, row.created, row.ended) == (
        UID,
        100,
        "team",
        "ann",
        CREATED,
        None,
    )
    assert hold == HoldRow(
        uid=UID,
        number=1,
        version=100,
        queue="team",
        attempt=1,
        start=CREATED,
        running=CREATED + 60,
        charge={"cpu": 3000, "pods": 3, "jobs": 1},
    )


def test_a_job_that_ran_before_an_upgrade_runs_since_its_condition_says_so() -> None:
    told = status_of("Running", admission=ADMISSION)
    (hold,) = hold_rows(jobs.of_job(sight(status=told), SEEN))
    assert hold.running == int(timestamps.parse(told["conditions"][0]["lastTransitionTime"]).timestamp())


def test_the_open_hold_begins_where_the_last_one_of_its_attempt_ended_and_tells_idle_growth_apart() -> None:
    idle = status_of("Running", admission=ADMISSION | {"workers": 2, "idle": 1}, holds=[HOLD])
    first, second = hold_rows(jobs.of_job(sight(status=idle), SEEN))
    assert (first.number, first.end, first.ended) == (1, CREATED + 120, "Suspended")
    assert (second.number, second.start, second.end, second.unpaid) == (
        2,
        CREATED + 120,
        None,
        {"cpu": 1000, "pods": 1},
    )


@pytest.mark.parametrize(
    ("found", "outcome", "reason", "message"),
    [
        (ended("Succeeded", "Succeeded", admission=ADMISSION), "Succeeded", "Succeeded", "its message"),
        (ended("Failed", "Error", admission=ADMISSION), "Failed", "Error", "its message"),
        (ended("Failed", "Cancelled", admission=ADMISSION), "Cancelled", "Cancelled", "its message"),
        (
            ended("Failed", "Cancelled", queue={"reason": "WaitingForQuota"}),
            "Cancelled",
            "Cancelled",
            "cancelled while it waited (WaitingForQuota)",
        ),
        (ended("Failed", "Cancelled"), "Cancelled", "Cancelled", "cancelled while it waited"),
    ],
)
def test_a_finished_job_ends_at_its_completion_time(
    found: dict[str, Any], outcome: str, reason: str, message: str
) -> None:
    row = job_row(jobs.of_job(sight(status=found), SEEN))
    assert (row.ended, row.outcome, row.reason, row.message) == (CREATED + 240, outcome, reason, message)
    assert not row.is_approximate


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (RUNNING, "deleted while it held room"),
        ({}, "deleted while it waited"),
        (status_of("Queued", queue={"reason": "Held"}), "deleted while it waited (Held)"),
        (status_of("Suspended"), "deleted while it was suspended"),
    ],
)
def test_a_deleted_job_is_charged_to_its_deletion_and_wins_over_its_last_sight(
    found: dict[str, Any], message: str
) -> None:
    store = MemoryHistory()
    store.write(jobs.of_deleted_job(sight(status=found), SEEN, SEEN - 5))
    store.write(jobs.of_job(sight(status=found), SEEN))
    (record,) = store.jobs(JobQuery())
    assert (record.job.outcome, record.job.ended, record.job.message) == ("Deleted", SEEN - 5, message)
    assert [hold.end for hold in record.holds] == [SEEN - 5] * len(record.holds)
    deleting = sight(status=found, metadata={"deletionTimestamp": "2026-01-02T03:03:00Z"})
    assert job_row(jobs.of_deleted_job(deleting, SEEN, SEEN)).ended == CREATED + 180, (
        "the time of the object comes first"
    )
    assert job_row(jobs.of_job(deleting, SEEN)).outcome == "Deleted", "its pods are counted from here on"


def test_a_job_that_is_gone_is_charged_to_the_time_until_which_everything_was_recorded() -> None:
    row, hold = jobs.of_job(sight(status=RUNNING), SEEN)[:2]
    assert isinstance(row, JobRow)
    assert isinstance(hold, HoldRow)
    for until, end in ((SEEN + 600, SEEN + 600), (0, SEEN)):
        lost, closed = jobs.of_lost_job(OpenJob(row=row, holds=(hold,)), until)
        assert lost == replace(
            row, ended=end, outcome="Deleted", is_approximate=True, reason="Deleted", message="deleted"
        )
        assert closed == replace(hold, end=end, ended="Deleted", is_approximate=True)


def test_a_hold_that_a_worker_of_an_older_version_ended_with_the_job_is_approximate() -> None:
    found = ended("Succeeded", "Succeeded", admission=ADMISSION)
    (hold,) = hold_rows(jobs.of_job(sight(status=found), SEEN))
    assert (hold.number, hold.start, hold.end, hold.ended) == (1, CREATED, CREATED + 240, "Succeeded")
    assert hold.is_approximate
    recorded = found | {"holds": [HOLD | {"to": "2026-01-02T03:04:00Z", "ended": "Succeeded"}]}
    assert [row.is_approximate for row in hold_rows(jobs.of_job(sight(status=recorded), SEEN))] == [False]


def test_holds_that_a_worker_of_an_older_version_ended_leave_a_gap_and_end_where_the_next_one_begins() -> None:
    first, open_hold = jobs.of_job(sight(status=RUNNING), SEEN)[:2]
    again = status_of("Running", admission=ADMISSION | {"attempt": 2, "admittedAt": "2026-01-02T04:00:00Z"}, attempt=2)
    resized = HOLD | {"number": 2, "attempt": 2, "from": "2026-01-02T04:00:00Z", "to": "2026-01-02T05:00:00Z"}
    assert isinstance(first, JobRow)
    assert isinstance(open_hold, HoldRow)
    (second,) = hold_rows(jobs.of_job(sight(status=again), SEEN))
    assert (second.number, second.is_approximate) == (2, True)
    open_job = OpenJob(row=first, holds=(open_hold,))
    assert jobs.of_ended_holds(open_job, sight(status=again), SEEN) == [
        replace(open_hold, end=second.start, is_approximate=True)
    ]
    (lost,) = jobs.of_ended_holds(open_job, sight(status=again | {"holds": [resized]}), SEEN)
    assert isinstance(lost, HoldRow)
    assert lost.end == second.start, "the next one of three"
    waiting = status_of("Queued", attempt=1)
    waiting["conditions"][0]["lastTransitionTime"] = "2026-01-02T03:02:00Z"
    (lost,) = jobs.of_ended_holds(open_job, sight(status=waiting), SEEN)
    assert isinstance(lost, HoldRow)
    assert lost.end == CREATED + 120, "it is in its queue since then"
    assert jobs.of_ended_holds(open_job, sight(status=RUNNING), SEEN) == [], "the job has it"
    assert jobs.of_ended_holds(open_job, sight(status=waiting | {"holds": [HOLD]}), SEEN) == [], "a worker closed it"


def test_a_restored_job_is_filed_under_its_first_uid_and_not_before_it_has_its_end() -> None:
    creating = sight(suspend=True, annotations={labels.RESTORED: "first"})
    assert jobs.of_job(creating, SEEN) == jobs.of_deleted_job(creating, SEEN, SEEN) == []
    waits = sight(annotations={labels.RESTORED: "first"})
    assert job_row(jobs.of_job(waits, SEEN)).uid == UID, "a job that runs again is a job of its own"
    origin = {"uid": "first", "created": "2025-12-31T00:00:00Z"}
    found = ended("Succeeded", "Succeeded", admission=ADMISSION, restoredFrom=origin, attempt=1)
    rows = jobs.of_job(sight(status=found, suspend=True, annotations={labels.RESTORED: "first"}), SEEN)
    assert {row.uid for row in rows if isinstance(row, JobRow | HoldRow)} == {"first"}
    assert job_row(rows).created == 1767139200


def test_times_of_clocks_that_differ_end_nothing_before_it_began() -> None:
    early = ended("Succeeded", "Succeeded", admission=ADMISSION) | {"completionTime": "2026-01-02T02:00:00Z"}
    for rows in (jobs.of_job(sight(status=early), SEEN), jobs.of_deleted_job(sight(status=RUNNING), SEEN, 0)):
        assert job_row(rows).ended == CREATED
        assert [(hold.start, hold.end) for hold in hold_rows(rows)] == [(CREATED, CREATED)]


@pytest.mark.parametrize("wrong", [{"to": "2026-01-02T03:03:00"}, {"to": "soon"}, {"number": 0}, {"charge": []}])
def test_a_hold_that_no_worker_writes_is_left_out(wrong: dict[str, Any]) -> None:
    rows = hold_rows(jobs.of_job(sight(status=RUNNING | {"holds": [HOLD, HOLD | {"number": 2} | wrong]}), SEEN))
    assert [(row.number, row.end) for row in rows] == [(1, CREATED + 120), (2, None)]


class Written(NamedTuple):
    """A job as it was written at a time."""

    manifest: dict[str, Any]
    at: datetime


Change = Callable[[TorchJob, datetime], TorchJobStatus]


def _admission(found: TorchJob, **change: Any) -> TorchJobStatus:
    """Return the status with another admission; the same if the job holds nothing."""
    held = found.status.admission
    after = None if held is None else held.model_copy(update=change)
    return found.status.model_copy(update={"admission": after})


def _admit(found: TorchJob, now: datetime) -> TorchJobStatus:
    if found.status.admission is not None:
        return found.status
    queue = "team" if found.status.attempt % 3 else "other"
    fields = ADMISSION | {"queue": queue, "attempt": found.status.attempt + 1, "workers": 2}
    return status.admit(found, Admission.model_validate(fields), now)


def _resize(found: TorchJob, now: datetime) -> TorchJobStatus:
    workers = (found.status.admission.workers or 2) % 5 + 1 if found.status.admission else 1
    return _admission(found, workers=workers, charge={"cpu": 1000 * workers, "pods": workers + 1, "jobs": 1})


def _grow_idle(found: TorchJob, now: datetime) -> TorchJobStatus:
    return _admission(found, idle=1 - found.status.admission.idle if found.status.admission else 0)


def _run(found: TorchJob, now: datetime) -> TorchJobStatus:
    return status.mark_running(found, now) if found.status.phase == "Admitted" else found.status


def _send_back(found: TorchJob, now: datetime) -> TorchJobStatus:
    held = found.status.admission
    return status.release(found, "Queued", "QueueDrained", "drained", now) if held else found.status


def _suspend(found: TorchJob, now: datetime) -> TorchJobStatus:
    return status.release(found, "Suspended", "Suspended", "suspended by its owner", now)


def _fail(found: TorchJob, now: datetime) -> TorchJobStatus:
    return status.finish(found, "Failed", "Error", "no", now)


def _wait(found: TorchJob, now: datetime) -> TorchJobStatus:
    return found.status if found.status.admission else status.release(found, "Queued", "Waiting", "waits", now)


CHANGES: tuple[Change, ...] = (_admit, _run, _resize, _grow_idle, _send_back, _suspend, _wait)


def life(steps: list[tuple[Change, int]], *, fails: bool) -> list[Written]:
    """Return all that workers write of a job whose status changes so, some seconds after each other."""
    found, now, written = job(), NOW, [Written(job().model_dump(mode="json", by_alias=True), NOW)]
    for version, (change, seconds) in enumerate((*steps, *[(_fail, 7)] * fails), 1):
        now += timedelta(seconds=seconds)
        after = change(found, now)
        after = after.model_copy(update={"holds": closed_holds.after(found.status, after, now, found.spec)})
        found = found.model_copy(update={"status": after})
        told = manifest(status=after.manifest()) | {"version": version}
        told["metadata"] |= {"resourceVersion": str(100 + version)}
        written.append(Written(told, now))
    return written


@given(
    st.lists(st.tuples(st.sampled_from(CHANGES), st.integers(1, 4000)), max_size=40),
    st.booleans(),
    st.data(),
)
def test_sights_of_any_part_in_any_order_and_doubled_give_the_rows_of_one_that_saw_everything(
    steps: list[tuple[Change, int]], fails: bool, data: st.DataObject
) -> None:
    written = life(steps, fails=fails)
    part = data.draw(st.lists(st.integers(0, len(written) - 1), max_size=2 * len(written)))
    whole, lacking, now = MemoryHistory(), MemoryHistory(), int(written[-1].at.timestamp()) + 60
    for each in written:
        whole.write(jobs.of_job(jobs.trim_job(each.manifest), int(each.at.timestamp())))
    for number in data.draw(st.permutations([*part, len(written) - 1])):
        each = written[number]
        lacking.write(jobs.of_job(jobs.trim_job(each.manifest), int(each.at.timestamp())))

    (seen,), (known,) = whole.jobs(JobQuery()), lacking.jobs(JobQuery())
    assert known.job == seen.job
    parts = {hold.number: replace(hold, version=0) for hold in seen.holds}
    assert all(parts[hold.number] == replace(hold, version=0) for hold in known.holds if not hold.numbers)
    assert lacking.sums(ALL, now) == whole.sums(ALL, now)
    waits = {key: replace(row, version=0) for key, row in whole.rows.items() if isinstance(row, WaitRow)}
    assert all(waits[key] == replace(row, version=0) for key, row in lacking.rows.items() if isinstance(row, WaitRow))
    total: dict[str, int] = {}
    for sums in whole.sums(ALL, now):
        for name, amount in sums.held.items():
            total[name] = total.get(name, 0) + amount
    told = written[-1].manifest.get("status") or {}
    expected = holds.total_seconds(holds.read(told, timestamps.parse("1970-01-01T00:00:00Z") + timedelta(seconds=now)))
    assert total == {name: amount for name, amount in expected.items() if amount}


def test_300_attempts_have_each_hold_and_the_last_sight_alone_has_their_sum() -> None:
    steps: list[tuple[Change, int]] = [(_admit, 60), (_run, 5), (_send_back, 115)] * 300
    written = life(steps, fails=True)
    whole, last, now = MemoryHistory(), MemoryHistory(), int(written[-1].at.timestamp())
    whole.write(row for each in written for row in jobs.of_job(jobs.trim_job(each.manifest), now))
    last.write(jobs.of_job(jobs.trim_job(written[-1].manifest), now))
    (seen,), (known,) = whole.jobs(JobQuery()), last.jobs(JobQuery())
    assert [(hold.number, hold.attempt, hold.end - hold.start) for hold in seen.holds if hold.end] == [
        (number, number, 120) for number in range(1, 301)
    ]
    assert len(known.holds) == holds.MOST
    assert last.sums(ALL, now) == whole.sums(ALL, now)


hostile: Any = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text()
    | st.sampled_from(["\x00", "\ud800", "9999-12-31T23:59:59Z", "2026-01-02T03:00:00", "Running"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
FIELDS = ("phase", "admission", "holds", "conditions", "attempt", "completionTime", "queue", "restoredFrom", "result")


@given(
    st.dictionaries(st.sampled_from(FIELDS), hostile), st.dictionaries(st.sampled_from(sorted(HOLD)), hostile), hostile
)
def test_no_object_raises(told: dict[str, Any], hold: dict[str, Any], spec: Any) -> None:
    found = manifest(status=RUNNING | {"holds": [HOLD | hold], "admission": ADMISSION | {"charge": spec}} | told)
    found["spec"] = {"schedulingPolicy": spec, "suspend": spec, "torchTaskSpecs": spec}
    for deleted in (None, 0):
        trimmed = jobs.trim_job(found)
        rows = jobs.of_job(trimmed, SEEN) if deleted is None else jobs.of_deleted_job(trimmed, SEEN, deleted)
        assert all(len(repr(row)) < 100_000 for row in rows)


def test_every_text_can_be_stored_as_utf_8_without_nul() -> None:
    row = job_row(jobs.of_job(sight(annotations={labels.SUBMITTED_BY: "a\x00b\ud800c"}), SEEN))
    assert row.user == "a\N{REPLACEMENT CHARACTER}b?c"


def test_a_row_is_bounded() -> None:
    long, many = "x" * 100_000, {f"{number:03d}.{'x' * 249}": number + 1 for number in range(64)}
    told = ended("Failed", long, admission=ADMISSION | {"charge": many}, result=long, queue={"reason": long})
    told["conditions"][0]["message"] = long
    row, hold = jobs.of_job(sight(status=told, annotations={labels.SUBMITTED_BY: long}), SEEN)[:2]
    assert isinstance(hold, HoldRow)
    assert (len(hold.charge), hold.others) == (holds.MOST_RESOURCES, 48)
    assert len(repr(row)) < 2000
