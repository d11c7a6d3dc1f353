"""Rows of the history for tests: a job, its holds, its waits and its pods, with what a test does not care about."""

from typing import Any

from history.rows import HoldRow, JobRow, PodRow, WaitRow

GPU = "nvidia.com/gpu"


def job(uid: str, version: int = 1, **fields: Any) -> JobRow:
    """Return the row of a job that was submitted at 0."""
    return JobRow(
        uid=uid, version=version, **{"namespace": "red", "name": uid, "queue": "a", "created": 0, "seen": 0, **fields}
    )


def hold(uid: str, start: int, end: int | None, gpus: int = 1, **fields: Any) -> HoldRow:
    """Return the row of a hold of GPUs."""
    given = {"number": 1, "version": 1, "queue": "a", "attempt": 1, "charge": {GPU: gpus} if gpus else {}, **fields}
    return HoldRow(uid=uid, start=start, end=end, **given)


def merged(uid: str, numbers: str, start: int, end: int, total: int, **fields: Any) -> HoldRow:
    """Return the row of several holds together, with a sum of GPU-seconds."""
    number = int(numbers.replace("-", ",").rpartition(",")[2])
    return hold(uid, start, end, 0, **{"number": number, "numbers": numbers, "seconds": {GPU: total}, **fields})


def wait(uid: str, start: int, end: int | None, **fields: Any) -> WaitRow:
    """Return the row of a wait."""
    return WaitRow(uid=uid, start=start, end=end, **{"version": 1, "queue": "a", **fields})


def pod(uid: str, owner: str, start: int, end: int | None, gpus: int = 1, **fields: Any) -> PodRow:
    """Return the row of a pod that outlives its job."""
    given = {"version": 1, "namespace": "red", "queue": "a", "charge": {GPU: gpus}, **fields}
    return PodRow(uid=uid, job=owner, start=start, end=end, **given)
