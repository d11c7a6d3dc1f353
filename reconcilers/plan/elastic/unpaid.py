"""The workers for which a queue has not paid (idle growth), once others need their room.

One rule: pure. Their room is free within the setting `idle_grace`: the time to save ends so early that the grace of the
pods fits in, and pods that have not ended by then get no further grace. That is no failure: the pods are no part of the
job any more.
"""

from crds.torchjob.status import GIVE_BACK, Admission, Target
from reconcilers.plan.elastic import checkpoints
from reconcilers.plan.lifecycle import Active
from reconcilers.plan.moment import Moment
from reconcilers.views.pod_view import PodView


def gives_back(target: Target | None, wanted: int, admission: Admission) -> bool:
    """Return whether others need room of the job, and the job gives them no worker for which its queue has paid."""
    needed = target is not None and target.reason == GIVE_BACK
    return needed and (admission.workers or 0) - wanted <= admission.idle


def longest_save(run: Active, at: Moment, target: Target | None, wanted: int) -> float | None:
    """Return the seconds for which a job may save before it gives its room back; None if only the job limits them."""
    if not gives_back(target, wanted, run.admission):
        return None
    return checkpoints.longest_save(run.wanted, run.pods, at.settings.idle_grace)


def seconds_to_free(run: Active, at: Moment) -> float | None:
    """Return the seconds until unpaid workers that are being removed have to be gone; None if there are none."""
    scaling = run.job.status.scaling
    if scaling is None or not scaling.victims or not run.admission.idle:
        return None
    return at.settings.idle_grace - (at.now - scaling.since).total_seconds()


def late_pods(run: Active, at: Moment) -> tuple[PodView, ...]:
    """Return the pods of unpaid workers that had to be gone by now."""
    left = seconds_to_free(run, at)
    if left is None or left > 0:
        return ()
    names = frozenset(run.job.status.victims[: run.admission.idle])
    return tuple(pod for pod in run.removed if pod.name in names)
