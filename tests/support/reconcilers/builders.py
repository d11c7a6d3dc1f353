"""Builders of jobs, pods and observations with ordinary defaults."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from crds import labels
from crds.keys import JobKey
from crds.torchjob import torchjob
from crds.torchjob.torchjob import TorchJob
from queues.tasks import Task
from queues.values import Reservation
from reconcilers.values import Observation
from reconcilers.views import pod_view
from reconcilers.views.pod_view import PodView

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
UID = "0c5e8f0a-7a4e-4b0e-9d0a-3f3a54c1d001"
KEY = JobKey("team", "digits", UID)
RESERVATION = Reservation(
    key=KEY, queue="team", attempt=1, epoch=7, pick=9, charge={"jobs": 1, "pods": 3, "cpu": 3000}, port=20_001
)
ADMISSION = {
    "queue": "team",
    "attempt": 1,
    "epoch": 7,
    "pick": 9,
    "charge": {"jobs": 1, "pods": 3, "cpu": 3000},
    "port": 20_001,
    "admittedAt": "2026-01-02T03:00:00Z",
    "gangScheduler": "none",
    "successPolicy": "AllTasks",
}
UNDER_MASTER = ADMISSION | {"successPolicy": "Master"}
"""The admission of a job that ends with its Master."""


def template(**container: Any) -> dict[str, Any]:
    """Return a pod template of one container."""
    main = {"name": "torch", "image": "torch:1", "command": ["python", "train.py"], **container}
    main.setdefault("resources", {"requests": {"cpu": "1"}})
    return {"spec": {"containers": [main]}}


def task(count: int = 1, **fields: Any) -> dict[str, Any]:
    """Return one entry of torchTaskSpecs."""
    return {"numTasks": count, "template": template(), **fields}


def manifest(
    tasks: Mapping[str, Any] | None = None,
    status: Mapping[str, Any] | None = None,
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """Return a TorchJob as the API server returns it; by default with one Master and two Workers without
    dependencies.
    """
    return {
        "apiVersion": "train.distributed.io/v1alpha1",
        "kind": "TorchJob",
        "metadata": {
            "name": KEY.name,
            "namespace": KEY.namespace,
            "uid": KEY.uid,
            "resourceVersion": "100",
            "generation": 1,
            "creationTimestamp": "2026-01-02T03:00:00Z",
            "annotations": dict(annotations or {}),
        },
        "spec": {"torchTaskSpecs": dict(tasks or {"Master": task(), "Worker": task(2, dependsOn=[])}), **spec},
        "status": dict(status or {}),
    }


def left_over(name: str, uid: str, *, owned: bool) -> dict[str, Any]:
    """Return the metadata of an object with a job's labels. An `owned` object is kept by finalizers."""
    owner = {"apiVersion": "train.distributed.io/v1alpha1", "kind": "TorchJob", "name": KEY.name, "uid": uid}
    metadata = {"name": name, "labels": {labels.JOB_UID: uid, labels.ATTEMPT: "1"}}
    return metadata | (
        {"ownerReferences": [owner | {"controller": True}], "finalizers": ["example.org/keep"]} if owned else {}
    )


def job(*args: Any, **fields: Any) -> TorchJob:
    """Return the parsed `manifest`."""
    return torchjob.parse(manifest(*args, **fields))


def conditions(*true: str) -> list[dict[str, str]]:
    """Return conditions that are True."""
    when = "2026-01-02T03:00:00Z"
    return [
        {"type": each, "status": "True", "reason": each, "message": "", "lastTransitionTime": when} for each in true
    ]


def status(phase: str, **fields: Any) -> dict[str, Any]:
    """Return the status of a job in a phase, with an admission where the phase has one."""
    true = {"Running": ("Admitted", "Running"), "": ()}.get(phase, (phase,))
    found: dict[str, Any] = {"phase": phase, "conditions": conditions(*true), "observedGeneration": 1}
    if phase in ("Admitted", "Running"):
        found |= {"admission": ADMISSION, "attempt": 1, "startTime": "2026-01-02T03:00:00Z"}
    return found | fields


def pod(task_type: str = "Master", index: int = 0, phase: str = "Running", **fields: Any) -> PodView:
    """Return a pod of the job's first attempt."""
    made = PodView(
        namespace=KEY.namespace,
        name=f"{KEY.name}-{task_type.lower()}-{index}",
        uid=f"{task_type.lower()}-{index}",
        job_uid=KEY.uid,
        task=task_type.lower(),
        index=index,
        attempt=1,
        restart=0,
        phase=phase,
    )
    return replace(made, **fields)


def all_pods(phase: str = "Running", **fields: Any) -> tuple[PodView, ...]:
    """Return all pods of the default job with the same fields."""
    return (pod("Master", 0, phase, **fields), pod("Worker", 0, phase, **fields), pod("Worker", 1, phase, **fields))


def observe(job: Any, *pods: PodView, reservation: Reservation | None = RESERVATION, **fields: Any) -> Observation:
    """Return an observation of the default key."""
    return Observation(key=KEY, job=job, pods=pods, reservation=reservation, **fields)


def work(reservation: Reservation | None = RESERVATION, key: JobKey = KEY, seen: int = 0) -> Task:
    """Return a key that is leased to a worker."""
    return Task(key=key, token="token", tenant="team", seen=seen, failures=0, reservation=reservation)


def view(manifest: Mapping[str, Any], uid: str, phase: str = "Pending") -> PodView:
    """Return the view of a pod that was just created from a manifest."""
    metadata = {**manifest["metadata"], "uid": uid}
    return pod_view.trim({**manifest, "metadata": metadata, "status": {"phase": phase}})
