"""The Events of a normal life: what happened to a job, for those who describe it.

One rule: pure. An Event follows from the status before and the status that the API server has taken. What goes wrong
has Events of its own, which are part of a plan.
"""

from collections.abc import Mapping
from typing import Any

from crds.torchjob.torchjob import TorchJob
from reconcilers.values import EmitEvent, InvalidJob


def between(job: TorchJob | InvalidJob, status: Mapping[str, Any]) -> EmitEvent | None:
    """Return the Event about the change from the status of a job to a written one; None if it needs none."""
    before, phase = job.status, status.get("phase", "")
    attempt = (status.get("admission") or {}).get("attempt")
    if attempt is not None and attempt != (before.admission.attempt if before.admission else None):
        return EmitEvent("Admitted", _message(status, "Admitted"))
    if phase == before.phase:
        return None
    match phase:
        case "Queued" if before.admission is None:  # a job that was sent back has an Event that says why
            return EmitEvent("Queued", _message(status, "Queued"))
        case "Running":
            restarts = int(status.get("restartGeneration") or 0)
            after = f", after {restarts} restart{'s' * (restarts > 1)}" if restarts else ""
            return EmitEvent("Running", _message(status, "Running") + after)
        case "Succeeded":
            return EmitEvent("Succeeded", _message(status, "Succeeded"))
    return None


def _message(status: Mapping[str, Any], condition: str) -> str:
    messages = (each.get("message") for each in status.get("conditions") or () if each.get("type") == condition)
    return str(next(messages, None) or condition)
