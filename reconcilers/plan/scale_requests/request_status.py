"""The status of a scale request in each of its phases.

One rule: pure. A request that is over never changes again. A phase is a condition, too, so that programs can wait for
it; a condition's time moves only when its status changes.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from crds import excerpts
from crds.scale_request import RequestPhase, ScaleStatus
from crds.torchjob import conditions
from crds.torchjob.torchjob import TorchJob
from reconcilers.plan.scale_requests.judgement import Misfit
from reconcilers.values import Action, EmitEvent, InvalidJob, PatchRequest, earliest
from reconcilers.views.scale_request_view import RequestView

MOST_PODS = 1_000
LONGEST_MESSAGE = 1024


@dataclass(frozen=True, slots=True)
class RequestPlan:
    """The actions for the requests of a job, in order; the job is observed again after them."""

    actions: tuple[Action, ...] = ()
    requeue_after: float | None = None
    """Seconds after which the actions may change although no event arrives."""


def change_phase(
    request: RequestView, phase: RequestPhase, message: str, now: datetime, reason: str = "", **fields: Any
) -> ScaleStatus:
    """Return the status of a request that enters a phase; `fields` are further fields that change with it."""
    found = request.status.conditions
    if phase in ("Succeeded", "Failed"):
        for kind in ("Admitted", "Scaling"):
            if conditions.find(found, kind) is not None:
                found = conditions.set_condition(found, kind, False, reason or phase, message, now, 0)
        fields["completion_time"] = now
    if phase != "Pending":
        found = conditions.set_condition(found, phase, True, reason or phase, message, now, 0)
    text = excerpts.excerpt(message, LONGEST_MESSAGE)
    update = {"phase": phase, "reason": reason, "message": text, "conditions": found, **fields}
    return request.status.model_copy(update=update)


def write(request: RequestView, after: ScaleStatus) -> tuple[PatchRequest, ...]:
    """Return the write of a status; nothing if it is written already."""
    before_fields, after_fields = request.status.manifest(), after.manifest()
    names = before_fields.keys() | after_fields.keys()
    change = {name: after_fields.get(name) for name in names if before_fields.get(name) != after_fields.get(name)}
    return (PatchRequest(request, {"status": change}, "status"),) if change else ()


def merge(plans: Iterable[RequestPlan]) -> RequestPlan:
    """Return several plans as one."""
    parts = tuple(plans)
    actions = tuple(action for part in parts for action in part.actions)
    return RequestPlan(actions, 0.0 if actions else earliest(part.requeue_after for part in parts))


def fail(request: RequestView, misfit: Misfit, now: datetime, job: TorchJob | InvalidJob | None = None) -> RequestPlan:
    """Return the plan that ends a request; the owner of its job is told by an Event."""
    after = change_phase(request, "Failed", misfit.message, now, misfit.reason)
    event = EmitEvent("ScaleRequestFailed", f"{request.label}: {misfit.reason}: {misfit.message}", warning=True)
    return RequestPlan((*write(request, after), *((event,) if job is not None else ())))
