"""The holds of a job after a change of its status (`crds.holds`).

One rule: pure. Every written status goes through here, so that a hold ends in the patch that changes what the job
holds.
"""

from datetime import datetime

from crds import holds
from crds.holds import ClosedHold
from crds.torchjob import conditions, grant
from crds.torchjob.jobspec import TorchJobSpec
from crds.torchjob.status import Admission, TorchJobStatus

RESIZED, PAID, CHARGED = "Resized", "Paid", "Charged"
"""Why a hold ended though the job kept its room: another number of workers, idle growth that its queue pays for from
then on, or another charge for the same workers."""


def after(
    before: TorchJobStatus, status: TorchJobStatus, now: datetime, spec: TorchJobSpec | None = None
) -> tuple[ClosedHold, ...]:
    """Return the holds of a job whose status changes. `spec` is None if it is not valid: idle growth is then not told
    apart."""
    held = before.admission
    if held is None or before.is_finished or (not status.is_finished and _room(held) == _room(status.admission)):
        return before.holds
    charge, others = holds.bounded(held.charge)
    since = holds.begin(before.holds, held.attempt, held.admitted_at, now)
    hold = ClosedHold(
        number=holds.next_number(before.holds, held.attempt),
        queue=held.queue,
        attempt=held.attempt,
        workers=held.workers,
        charge=charge,
        unpaid=grant.unpaid(before, charge, spec),
        others=others,
        from_=since,
        running=held.running,
        to=max(since, now.replace(microsecond=0)),
        ended=_reason(held, status),
    )
    return holds.add(before.holds, hold)


def _room(admission: Admission | None) -> tuple[object, ...]:
    """Return all of an admission that belongs to a hold."""
    if admission is None:
        return ()
    return admission.queue, admission.attempt, admission.workers, admission.charge, admission.idle


def _reason(held: Admission, status: TorchJobStatus) -> str:
    admission = status.admission
    if status.is_finished or admission is None:
        condition = conditions.find(status.conditions, status.phase)
        return condition.reason if condition is not None else status.phase
    if admission.workers != held.workers:
        return RESIZED
    return PAID if admission.charge == held.charge and admission.idle < held.idle else CHARGED
