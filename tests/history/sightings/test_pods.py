"""The rows of pods that outlive their jobs."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crds import labels
from history.rows import PodRow
from history.sightings import pods

CREATED, JOB_END, SEEN = 1767322800, 1767323000, 1767324000
"""2026-01-02 03:00:00, and some time later."""


def sight(phase: str = "Running", ended: str | None = None, owned: bool = True, **fields: Any) -> dict[str, Any]:
    """Return a trimmed pod of a job; `ended` is when its container ended."""
    owner = {"apiVersion": "train.distributed.io/v1alpha1", "kind": "TorchJob", "name": "digits", "uid": "job"}
    metadata: dict[str, Any] = {
        "uid": "pod",
        "namespace": "team",
        "name": "digits-master-0",
        "resourceVersion": "7",
        "creationTimestamp": "2026-01-02T03:00:00Z",
        "labels": {labels.JOB_UID: "job", labels.JOB_NAME: "digits", labels.QUEUE: "team-a"},
        "annotations": {labels.CHARGE: '{"cpu": 1000, "nvidia.com/gpu": 8}'},
        "ownerReferences": [owner | {"controller": True}] * owned,
    }
    state = {"terminated": {"finishedAt": ended}} if ended else {}
    status = {"phase": phase, "containerStatuses": [{"name": "torch", "state": state}]}
    return pods.trim_pod({"metadata": metadata | fields, "status": status})


ROW = PodRow(
    uid="pod",
    version=7,
    job="job",
    namespace="team",
    queue="team-a",
    start=JOB_END,
    charge={"cpu": 1000, "nvidia.com/gpu": 8},
)


def test_a_pod_has_a_row_from_the_end_of_its_job_on_until_it_ends() -> None:
    assert pods.of_pod(sight(), None, SEEN) is None, "the job is charged for it"
    assert pods.of_pod(sight(), JOB_END, SEEN) == ROW
    assert pods.of_pod(sight(owned=False), JOB_END, SEEN) is None, "labels alone prove nothing"


@pytest.mark.parametrize(
    ("pod", "gone", "end"),
    [
        (sight("Succeeded", "2026-01-02T03:10:00Z"), None, CREATED + 600),
        (sight("Succeeded", "2026-01-02T03:10:00Z"), SEEN - 1, CREATED + 600),
        (sight("Failed"), None, SEEN),
        (sight(), SEEN - 1, SEEN - 1),
        (sight("Succeeded", "2026-01-02T03:01:00Z"), None, None),
        (sight(), JOB_END - 1, None),
    ],
)
def test_a_pod_ends_with_its_containers_else_with_its_deletion(
    pod: dict[str, Any], gone: int | None, end: int | None
) -> None:
    row = pods.of_pod(pod, JOB_END, SEEN, gone)
    assert (row and row.end) == end
    # The clock of a node may be behind that of the worker.
    closing = pods.of_pod(pod, JOB_END, SEEN, gone, is_open=True)
    assert closing is not None
    assert closing.end == max(JOB_END, end or 0)


def test_a_pod_without_containers_ended_when_its_conditions_changed() -> None:
    status = {"phase": "Failed", "conditions": [{"type": "Ready", "lastTransitionTime": "2026-01-02T03:20:00Z"}]}
    trimmed = pods.trim_pod(sight() | {"status": status})
    row = pods.of_pod(trimmed, JOB_END, SEEN)
    assert row is not None
    assert row.end == CREATED + 1200
    assert pods.trim_pod(trimmed) == trimmed


@given(st.text() | st.sampled_from(["[1]", '{"cpu": "x", "a": -1, "b": 1e400}', "9" * 5000, '{"c": 1, "c": true}']))
def test_no_charge_raises(text: str) -> None:
    row = pods.of_pod(sight(annotations={labels.CHARGE: text}), JOB_END, SEEN)
    assert row is not None
    assert all(amount > 0 for amount in row.charge.values())
