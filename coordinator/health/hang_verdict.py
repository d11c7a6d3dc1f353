"""The verdict on a watched job: whether it hangs, and which pods are to blame.

One rule: pure. A job of which no pod has reported since its last restart never hangs.

    found                                                      it hangs, and to blame is
    no step has moved for the limit                            no pod; but if exactly one pod is silent while others
                                                               report, that one
    steps move, but one pod stands, and others have gone on    that pod; of several, the one that stands longest
    without it for the limit

The limits are in `coordinator.health.step_watch`. After a pause of all pods, one pod is the first to continue, and the
other pods have the whole limit to follow. A pod is silent if it has not reported for hangTimeoutSeconds. A pod that has
never reported is neither silent nor behind: it may be that only the pod with rank 0 reports.
"""

from dataclasses import dataclass

from coordinator.health.step_watch import PodSteps, StepWatch
from crds.torchjob.jobspec import Health
from crds.torchjob.status import Hang


@dataclass(frozen=True, slots=True)
class HangVerdict:
    """A job that hangs."""

    seconds: float
    """For how long the steps stand."""
    behind: tuple[str, ...] = ()
    """The names of the pods with the lowest steps, sorted."""
    silent: tuple[str, ...] = ()
    """The names of the silent pods, sorted."""
    blamed: str = ""
    """The name of the pod that alone is to blame; empty if none is."""


def judge(watch: StepWatch, health: Health, now: float) -> HangVerdict | None:
    """Return that a job hangs; None if it does not, or if that is not known."""
    if not (watch.has_reported and watch.running and health.hang_timeout_seconds):
        return None
    pods = watch.pods
    silent = tuple(sorted(name for name, pod in pods.items() if now - pod.heard >= health.hang_timeout_seconds))
    since = watch.moved if watch.has_moved else watch.began
    if now - since >= (health.hang_timeout_seconds if watch.has_moved else health.first_step_seconds):
        blamed = silent[0] if len(silent) == 1 < len(pods) else ""
        lowest = min((pod.last.step for pod in pods.values()), default=0)
        behind = tuple(sorted(name for name, pod in pods.items() if pod.last.step == lowest))
        return HangVerdict(now - since, behind, silent, blamed)
    standing = {name: pod for name, pod in pods.items() if _is_left(watch, pod, health, now)}
    if not standing:
        return None
    blamed = min(standing, key=lambda name: (standing[name].moved, standing[name].last.step, name))
    mute = tuple(name for name in silent if name in standing)
    return HangVerdict(now - standing[blamed].moved, tuple(sorted(standing)), mute, blamed)


def _is_left(watch: StepWatch, pod: PodSteps, health: Health, now: float) -> bool:
    """Return whether a pod stands while other pods have continued without it for its limit."""
    if pod.left is None:
        return False
    return now - pod.left >= health.hang_timeout_seconds and (
        pod.has_moved or now - watch.began >= health.first_step_seconds
    )


def is_over(watch: StepWatch, hang: Hang, verdict: HangVerdict | None) -> bool:
    """Return whether a hang in the status of this run of the job is over.

    A leader that has just begun to watch does not know whether the hang is over: the hang stays until a step moves. A
    leader that has found the hang itself knows more: it is over too if the limit was raised.
    """
    if verdict is not None:
        return False
    if watch.hung:
        return True
    if hang.blamed:
        pod = watch.pods.get(hang.blamed)
        return hang.blamed not in watch.running or (pod is not None and pod.moved > watch.began)
    return watch.moved > watch.began
