"""Since when a job waits, by one sight of it."""

from typing import Any

import pytest

from crds import labels
from history.sightings import jobs, waits
from history.sightings.waits import WaitPoint
from history.store import JobQuery, Span
from tests.doubles.memory_history import MemoryHistory
from tests.support.reconcilers.builders import ADMISSION, NOW, manifest
from tests.support.reconcilers.builders import status as status_of

SEEN = int(NOW.timestamp())
CREATED = SEEN - 245
QUEUED = CREATED + 60
LATER = "2026-01-02T03:03:00Z"
HELD = {"schedulingPolicy": {"hold": True}}


def queued(cause: str = "Waiting", **queue: Any) -> dict[str, Any]:
    """Return the status of a job that is Queued since QUEUED."""
    found = status_of("Queued", queue=queue)
    found["conditions"][0] |= {"reason": cause, "lastTransitionTime": "2026-01-02T03:01:00Z"}
    return found


def retried(at: str) -> dict[str, Any]:
    """Return the annotation of a job that was resumed."""
    return {"annotations": {labels.RETRY_AT: at}}


@pytest.mark.parametrize(
    ("found", "spec", "point"),
    [
        ({}, {}, WaitPoint(CREATED, True)),
        ({}, HELD, WaitPoint(CREATED, False)),
        ({}, {"suspend": True}, WaitPoint(CREATED, False)),
        (queued(), {}, WaitPoint(QUEUED, True)),
        (queued(reason="QueueNotFound"), {}, WaitPoint(QUEUED, True)),
        (queued("Held", reason="Held"), HELD, WaitPoint(QUEUED, False)),
        (queued(), HELD, WaitPoint(SEEN, False)),
        (queued("Held", reason="Held"), {}, WaitPoint(SEEN, True)),
        (queued(reason="Held"), retried(LATER), WaitPoint(CREATED + 180, True)),
        (queued("Held"), {}, None),
        (queued(notBefore="2026-01-02T04:00:00Z"), {}, WaitPoint(QUEUED, False)),
        (queued(notBefore="2026-01-02T04:00:00Z"), retried(LATER), WaitPoint(CREATED + 180, True)),
        (queued(notBefore=LATER), {}, WaitPoint(CREATED + 180, True)),
        (queued(parked=True), {}, WaitPoint(QUEUED, False)),
        (queued(parked=True), retried("2026-01-02T03:00:30Z"), WaitPoint(QUEUED, False)),
        (queued(), retried("9999-12-31T00:00:00Z"), WaitPoint(QUEUED, True)),
        (status_of("Running"), {}, WaitPoint(CREATED, False)),
        (status_of("Suspended"), {}, WaitPoint(CREATED, False)),
        (status_of("Succeeded", admission=ADMISSION), {}, WaitPoint(CREATED, False)),
        (status_of("Failed"), {}, None),
        ({"phase": "Queued"}, {}, None),
        ({"phase": "Queued", "conditions": [{"type": "Queued", "lastTransitionTime": "soon"}]}, {}, None),
    ],
)
def test_a_sight_tells_since_when_a_job_waits_or_does_not(
    found: dict[str, Any], spec: dict[str, Any], point: WaitPoint | None
) -> None:
    annotations = spec.get("annotations")
    fields = {name: value for name, value in spec.items() if name != "annotations"}
    job = jobs.trim_job(manifest(status=found, annotations=annotations, **fields))
    assert waits.find(job, SEEN) == point


def admitted(**admission: Any) -> dict[str, Any]:
    """Return the status of a job that was admitted two minutes after its creation."""
    return status_of("Running", admission=ADMISSION | {"admittedAt": "2026-01-02T03:02:00Z"} | admission)


@pytest.mark.parametrize(
    ("found", "metadata", "spec", "seconds"),
    [
        (admitted(), {}, {}, 120),
        (admitted(), {"generation": 2}, {}, 0),
        (admitted(), {"generation": None}, {}, 0),
        (admitted(attempt=2), {}, {}, 0),
        (admitted(), {}, {"suspend": True}, 0),
        (admitted(), {}, HELD, 0),
    ],
)
def test_a_job_first_seen_with_room_waited_since_its_creation_unless_it_may_have_been_stopped(
    found: dict[str, Any], metadata: dict[str, Any], spec: dict[str, Any], seconds: int
) -> None:
    seen = manifest(status=found, **spec)
    seen["metadata"] |= metadata
    store = MemoryHistory()
    store.write(jobs.of_job(jobs.trim_job(seen), SEEN))
    assert [*store.first_waits(Span(0, 2**40)).values()] == [[seconds]]


def test_a_job_does_not_wait_on_after_an_admission_by_a_clock_that_is_behind() -> None:
    new, seen = manifest(), manifest(status=admitted(admittedAt="2026-01-02T02:00:00Z"))
    new["metadata"]["resourceVersion"] = "99"
    store = MemoryHistory()
    for each in (new, seen):
        store.write(jobs.of_job(jobs.trim_job(each), SEEN))
    assert store.waits(Span(0, 2**40), SEEN) == []
    assert [record.waits[-1].end for record in store.jobs(JobQuery())] == [CREATED]
