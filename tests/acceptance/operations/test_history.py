"""The history of real jobs: each has its row, and its holds are those of its status."""

from pathlib import Path
from typing import Any

from coordinator.local.stack_state import Files
from crds import holds
from crds.api_resources import TORCHJOBS
from history.errors import NotReachable
from history.sql.sql_history import open_history
from history.store import JobQuery, JobRecord
from tests.support.acceptance.jobs import job, python, recording
from tests.support.acceptance.stack import EVERYWHERE, Stack, fresh, until


def record(stack: Stack, uid: str) -> JobRecord | None:
    """Return what the database has of a job; None also before the recorder has made it. Commands read it in the same
    way."""
    try:
        store = open_history(Files(stack.data).history_url, "", read_only=True)
    except NotReachable:
        return None
    try:
        return next(iter(store.jobs(JobQuery(uid=uid))), None)
    finally:
        store.close()


def ended(stack: Stack, uid: str) -> JobRecord:
    """Wait until the end of a job is in the history, and return the job."""
    found = until(lambda: record(stack, uid), lambda each: each is not None and each.job.ended is not None)
    assert isinstance(found, JobRecord)
    return found


def told(stack: Stack, name: str) -> list[tuple[Any, ...]]:
    """Return the holds in the status of a job."""
    closed = [holds.ClosedHold.model_validate(each) for each in stack.job(name)["status"]["holds"]]
    return [
        (each.number, each.attempt, dict(each.charge), each.from_.timestamp(), each.to.timestamp(), each.ended)
        for each in closed
    ]


def recorded(found: JobRecord) -> list[tuple[Any, ...]]:
    """Return the holds in the history in the same form."""
    return [(each.number, each.attempt, dict(each.charge), each.start, each.end, each.ended) for each in found.holds]


@EVERYWHERE
def test_every_job_has_its_row_and_the_holds_of_its_status(stack: Stack, records: Path, tmp_path: Path) -> None:
    good, suspended, cancelled, deleted, expired = (fresh() for _ in range(5))
    never, gate = tmp_path / "never", tmp_path / "gate"
    stack.submit(
        job(good, python("pass")),
        job(suspended, recording(records, gate=gate)),
        job(cancelled, recording(records, gate=never)),
        job(deleted, recording(records, gate=never)),
    )
    uids = {name: stack.job(name)["metadata"]["uid"] for name in (good, suspended, cancelled, deleted)}
    for name in (suspended, cancelled, deleted):
        stack.reach(name, "Running")
    stack.torchq("job", "suspend", suspended)
    stack.reach(suspended, "Suspended")
    stack.torchq("job", "resume", suspended)
    stack.api.patch(TORCHJOBS, cancelled, {"spec": {"cancel": True}}, "default")
    stack.reach(cancelled, "Failed")
    stack.api.delete(TORCHJOBS, deleted, "default")
    gate.touch()
    stack.reach(suspended, "Succeeded")
    stack.reach(good, "Succeeded")
    (handle,) = stack.submit(job(expired, python("pass"), ttlSecondsAfterFinished=0))
    uids[expired] = handle.rpartition("/")[2]
    until(lambda: not stack.exists(expired))

    found = {name: ended(stack, uid) for name, uid in uids.items()}
    assert {name: each.job.outcome for name, each in found.items()} == {
        good: "Succeeded",
        suspended: "Succeeded",
        cancelled: "Cancelled",
        deleted: "Deleted",
        expired: "Succeeded",
    }
    assert not any(each.job.is_approximate for each in found.values())
    for name in (good, suspended, cancelled):
        assert recorded(found[name]) == told(stack, name)
    assert [hold.ended for hold in found[suspended].holds] == ["Suspended", "Succeeded"]
    assert [hold.ended for hold in found[deleted].holds] == ["Deleted"]
    (last,) = found[expired].holds
    assert (last.charge["cpu"], last.end) == (1000, found[expired].job.ended)
