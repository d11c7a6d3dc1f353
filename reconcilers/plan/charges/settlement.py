"""The plan of a job that is charged for less than its pods request, or are to request.

One rule: pure. The charge is raised before the status says so, and both before another pod is created.
"""

from datetime import datetime

from reconcilers.plan import ending, status
from reconcilers.plan.charges import memory
from reconcilers.plan.lifecycle import Active
from reconcilers.plan.pod_deletion import PodDeletion
from reconcilers.pods import measure
from reconcilers.pods.measure import Excess
from reconcilers.values import Observation, Plan, RaiseCharge


def settle(active: Active, observation: Observation, deletion: PodDeletion, now: datetime) -> Plan | None:
    """Return the plan for a job whose charge is too small; None if it is not, or if there is no room for memory that
    is to grow."""
    job = active.job
    excess = measure.find_excess(job, active.admission.charge, active.pods)
    if excess is not None:
        return _plan_excess(active, excess, observation, deletion, now)
    raises, after = memory.charge_growth(job, job.status, observation.no_memory)
    if not raises:
        return None
    return Plan((*raises, *status.write(job, after, active.pods)), requeue_after=0.0)


def _plan_excess(
    active: Active, excess: Excess, observation: Observation, deletion: PodDeletion, now: datetime
) -> Plan:
    """Charge the job for what its pods request, or send it back if there is no room for that."""
    job = active.job
    if excess.uncountable:
        message = f"{excess}; that is more than a job can be charged for"
        return ending.finish(job, observation, status.finish(job, "Failed", "InvalidTemplate", message, now), deletion)
    if observation.no_room is None:
        written = status.write(job, status.record_charge(job, excess.charge, excess.measured), active.pods)
        return Plan((RaiseCharge(active.admission.attempt, excess.charge), *written), requeue_after=0.0)
    message = excess.describe_refusal(active.admission.queue, observation.no_room)
    after = status.vacate(job, status.EXCEEDS, message, now).model_copy(update={"measured": excess.measured})
    return Plan(status.write(job, after, active.pods) + deletion.delete(active.pods))
