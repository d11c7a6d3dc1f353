"""How urgent it is to route a job whose objects have changed: as a run of its key would be (`queues.work_kinds`).

One rule: pure. An event shows little, so this is a guess; the route decides from the whole state what a worker's run
is for.
"""

from coordinator.cache.views import JobView, PodView
from queues.work_kinds import WorkKind


def of_job(before: JobView | None, after: JobView | None) -> WorkKind:
    """Return what a change of a job is about: it gives room back or is over, it wants room, or it tells."""
    if after is None or after.finished or after.deleting or after.stopped:
        return "ends"
    if before is not None and _gave_back(before, after):
        return "ends"
    if after.admission is not None:
        return "tells" if after.phase == "Running" else "begins"
    told = before is not None and before.competes and (before.phase, before.reason) != (after.phase, after.reason)
    return "tells" if told else "begins"


def of_pod(after: PodView | None) -> WorkKind:
    """Return what a change of a pod of a job is about, while other pods of the job hold room: one that has ended may
    have to be made anew."""
    return "tells" if after is not None and after.occupies else "begins"


def _gave_back(before: JobView, after: JobView) -> bool:
    old, new = before.admission, after.admission
    return old is not None and (new is None or (new.workers or 0) < (old.workers or 0))
