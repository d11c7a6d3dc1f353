"""PodGroups of coscheduling, which are written again while their pods wait: freed room does not wake the scheduler."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from crds import labels, timestamps
from crds.torchjob.torchjob import TorchJob
from gang import backends
from gang.values import GroupView
from reconcilers.plan.gangs import Scheduling
from reconcilers.plan.plan import plan
from reconcilers.settings import ReconcileSettings
from reconcilers.values import PatchObject
from tests.support.reconcilers.builders import ADMISSION, NOW, job, observe, pod, status, task

TOUCHED = {"metadata": {"annotations": {labels.TOUCHED: timestamps.format_time(NOW.timestamp())}, "uid": "group-0"}}


def group(described: TorchJob, scheduler: str, age: float) -> GroupView:
    """Return the group of a job whose object is `age` seconds old."""
    backend = backends.get_backend(scheduler)
    assert described.admission is not None
    scheduling = Scheduling(job=described, admission=described.admission, backend=backend)
    made = backend.create(scheduling.gang(described.spec.stages[0]))
    assert made is not None
    times = {"creationTimestamp": timestamps.format_time((NOW - timedelta(seconds=age)).timestamp())}
    return backend.trim({**made, "metadata": {**made["metadata"], "uid": "group-0", "resourceVersion": "1", **times}})


@pytest.mark.parametrize(
    ("scheduler", "age", "node", "touches", "again"),
    [
        ("coscheduling", 15, "", [TOUCHED], 15),
        ("coscheduling", 5, "", [], 10),
        ("coscheduling", 900, "n1", [], None),
        ("kubernetes", 900, "", [], None),
        ("volcano", 900, "", [], None),
    ],
)
def test_group_of_waiting_pods_is_touched_every_15_seconds(
    scheduler: str, age: float, node: str, touches: list[Any], again: float | None
) -> None:
    tasks = {"Worker": task(2)}
    described = job(tasks, status("Admitted", admission=ADMISSION | {"gangScheduler": scheduler}))
    pods = [replace(pod("Worker", index, "Pending"), node=node) for index in range(2)]
    found = plan(
        replace(observe(described, *pods), groups=(group(described, scheduler, age),)),
        ReconcileSettings(gang_scheduler=scheduler, admission_timeout=0),
        NOW,
    )
    assert [each.change for each in found.actions if isinstance(each, PatchObject)] == touches
    assert found.requeue_after == again
