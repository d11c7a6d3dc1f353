"""Builders of jobs with workers only. The number of their workers differs from the number that they request."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from crds.torchjob.torchjob import TorchJob
from queues.values import Reservation
from tests.support.reconcilers.builders import ADMISSION, RESERVATION, job, status, task

BOUNDS = {"numMinReplicas": 2, "numMaxReplicas": 8, "replicaStep": 2, "mode": "InPlaceRestart"}
RANGED: dict[str, Any] = {"minMembers": {"Worker": 2}}
ELASTIC: dict[str, Any] = {"torchElasticPolicy": BOUNDS}
SINCE = "2026-01-02T03:00:00Z"


def workers(wanted: int, found: Mapping[str, Any], **spec: Any) -> TorchJob:
    """Return a job with workers only."""
    return job({"Worker": task(wanted)}, status=found, **spec)


def charge(size: int) -> dict[str, int]:
    """Return the charge of a number of workers."""
    return {"jobs": 1, "pods": size, "cpu": 1000 * size}


def held(size: int, grown: int = 0, idle: int = 0) -> Reservation:
    """Return a reservation for a number of workers, some of which are not paid for."""
    return replace(RESERVATION, charge=charge(size), size=size, grown=grown, idle=idle)


def granted(phase: str, size: int, wish: int, indexes: str | None = None, **scaling: Any) -> dict[str, Any]:
    """Return the status of a job that was admitted with a number of workers, and waits for the other workers."""
    admission = ADMISSION | {"charge": charge(size), "workers": size, "grown": 0, "indexes": indexes}
    change = {"from": size, "to": wish, "since": SINCE} | scaling if wish != size or scaling else None
    return status(phase, admission=admission, scaling=change)
