"""The back-off between the restarts of one job, like the back-off of a kubelet between the restarts of one container.

One rule: pure. The job's status holds everything that a pause depends on, written in the patch that counts the failure.
A worker that takes over after a crash keeps the same pause.

Only a restart that raises `restartCount` makes the job back off. The first restart is immediate, as with a kubelet. The
pause then doubles until the job has run for 10 minutes:

    consecutive restart     1   2   3   4   5    6    7    8 ..
    seconds, at most        0  10  20  40  80  160  320  360 ..

Up to a quarter of each pause is left out, depending on the job's uid and the number of the restart. So jobs that failed
together are not restarted together. If another pod fails while the job backs off, both failures are assumed to have the
same cause. The pod waits too, and the pause does not grow.

Disruptions do not back off. Disruptions are spaced if there are many: 10 at once, then one in 10 seconds. Evictions of
one job's pods do not stay that frequent for long, but a template can request a node that will not accept its pods.
"""

import hashlib
import math
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from crds import timestamps
from crds.keys import JobKey
from crds.torchjob import conditions
from crds.torchjob.status import MOST_AT_ONCE, TorchJobStatus
from reconcilers.settings import ReconcileSettings

JITTER = 0.25
"""The largest fraction of a pause that is left out."""
RUNS_WELL = 600.0
"""The seconds that a job has to run until its earlier restarts are forgotten: twice a kubelet's longest back-off."""
DISRUPTIONS_AT_ONCE = 10
DISRUPTION_SECONDS = 10.0
"""The seconds after which one more disruption is free."""


def pause(key: JobKey, number: int, settings: ReconcileSettings) -> float:
    """Return the seconds before a job's n-th restart in a row, from 1."""
    if number <= 1:
        return 0.0
    seconds = min(settings.longest_restart_backoff, settings.restart_backoff * 2.0 ** min(number - 2, 64))
    return spread(seconds, f"{key.uid}/restart/{number}")


def spread(seconds: float, what: str) -> float:
    """Return a pause with up to a quarter of it left out, which depends on the job and on the number of the try.

    Jobs that failed together then do not come back together. Two gangs that each got half of a cluster would otherwise
    repeat that without end.
    """
    digest = hashlib.sha256(what.encode()).digest()
    return seconds * (1.0 - JITTER * int.from_bytes(digest[:4], "big") / 2**32)


def remaining_pause(status: TorchJobStatus, settings: ReconcileSettings, now: datetime) -> float:
    """Return the seconds until a job has backed off; 0 if it does not back off.

    A pause longer than the longest possible pause is ignored: a clock was set back, or an admin has shortened the
    setting.
    """
    if status.restart_not_before is None:
        return 0.0
    seconds = (status.restart_not_before - now).total_seconds()
    return seconds if 0 < seconds <= _longest(settings) else 0.0


def _longest(settings: ReconcileSettings) -> float:
    """Return the longest possible pause in seconds, rounded up because times in a status are whole seconds."""
    return math.ceil(max(settings.longest_restart_backoff, DISRUPTION_SECONDS)) + 1.0


def is_pod_waiting(status: TorchJobStatus, pod: str, settings: ReconcileSettings, now: datetime) -> bool:
    """Return whether a missing pod must not be created yet."""
    return remaining_pause(status, settings, now) > 0 and (not status.backing_off or pod in status.backing_off)


def job_pause(status: TorchJobStatus, settings: ReconcileSettings, now: datetime) -> float:
    """Return the seconds for which the whole job backs off; 0 if it does not."""
    return 0.0 if status.backing_off else remaining_pause(status, settings, now)


def seconds_until_forgotten(status: TorchJobStatus, now: datetime) -> float | None:
    """Return the seconds until a job has run long enough for its earlier restarts to be forgotten; 0 or less if the job
    has run for long enough. The result is None if the job does not run, or there is nothing to forget.
    """
    if status.restart_not_before is None and not status.consecutive_restarts:
        return None
    ran = conditions.find(status.conditions, "Running")
    if ran is None or ran.status != "True":
        return None
    since = max(ran.last_transition_time, status.restart_not_before or ran.last_transition_time)
    return RUNS_WELL - (now - since).total_seconds()


def next_change(status: TorchJobStatus, settings: ReconcileSettings, now: datetime) -> float | None:
    """Return the seconds until the pause is over or the earlier restarts are forgotten; None if neither is due."""
    if status.restart_not_before is None and not status.consecutive_restarts:
        return None
    times = (remaining_pause(status, settings, now), seconds_until_forgotten(status, now) or 0.0)
    return min((seconds for seconds in times if seconds > 0), default=None)


def forget_if_stable(status: TorchJobStatus, now: datetime) -> TorchJobStatus:
    """Return the status, without its back-off if the job has run long enough."""
    seconds = seconds_until_forgotten(status, now)
    if seconds is None or seconds > 0:
        return status
    return status.model_copy(update={"restart_not_before": None, "backing_off": (), "consecutive_restarts": 0})


def count_restart(
    key: JobKey, before: TorchJobStatus, pods: Iterable[str], settings: ReconcileSettings, now: datetime
) -> dict[str, Any]:
    """Return the changes of the status for a counted restart. `pods` are the names of the waiting pods; empty means the
    whole job."""
    current = forget_if_stable(before, now)
    if remaining_pause(current, settings, now) > 0:
        return {"backing_off": _merge_pods(current.backing_off, tuple(pods))}
    number = current.consecutive_restarts + 1
    return {
        "restart_not_before": _whole_second_after(now, pause(key, number, settings)),
        "backing_off": _limit_pods(tuple(pods)),
        "consecutive_restarts": number,
    }


def count_disruption(
    before: TorchJobStatus, pods: Iterable[str], settings: ReconcileSettings, now: datetime
) -> dict[str, Any]:
    """Return the changes of the status for a disruption: the generic cell rate algorithm (ITU-T I.371), with one time
    as its state. The 11th disruption within a second waits for 10 s, the 12th then for 10 s more.

    A job that backs off keeps its pause; only pods that would be created at once are spaced.
    """
    ahead = timedelta(seconds=DISRUPTION_SECONDS * DISRUPTIONS_AT_ONCE)
    spaced_until = before.disruptions_spaced_until or now
    next_free = min(max(spaced_until, now), now + ahead) + timedelta(seconds=DISRUPTION_SECONDS)
    spaced: dict[str, Any] = {"disruptions_spaced_until": next_free}
    seconds = (next_free - ahead - now).total_seconds()
    if seconds <= 0 or not settings.restart_backoff:
        return spaced
    if remaining_pause(before, settings, now) > 0:
        return spaced | {"backing_off": _merge_pods(before.backing_off, tuple(pods))}
    return spaced | {"restart_not_before": _whole_second_after(now, seconds), "backing_off": _limit_pods(tuple(pods))}


def end_pause(before: TorchJobStatus, now: datetime) -> dict[str, Any]:
    """Return the changes of the status for a restart that the owner requested: the pause ends, its cause is not
    forgotten."""
    if before.restart_not_before is None or before.restart_not_before <= now:
        return {}
    return {"restart_not_before": _whole_second_after(now, 0.0), "backing_off": ()}


def clear() -> dict[str, Any]:
    """Return the changes of the status for a job that gives up its resources or starts again with them: no pod waits
    any more.
    """
    return {"restart_not_before": None, "backing_off": ()}


def describe(status: TorchJobStatus, settings: ReconcileSettings, now: datetime) -> str:
    """Return when a job continues, as the end of a sentence; empty if the job continues at once."""
    if remaining_pause(status, settings, now) <= 0 or status.restart_not_before is None:
        return ""
    subject = "pods are" if status.backing_off else "all pods are"
    when = timestamps.format_time(status.restart_not_before)
    return f"; back-off: {subject} created again at {when}"


def _whole_second_after(now: datetime, seconds: float) -> datetime:
    """Return a time in whole seconds, as the status stores it; never earlier than requested, except for an immediate
    time."""
    whole = now.replace(microsecond=0)
    return whole + timedelta(seconds=math.ceil(seconds + (now - whole).total_seconds())) if seconds > 0 else whole


def _merge_pods(some: tuple[str, ...], more: tuple[str, ...]) -> tuple[str, ...]:
    """Return the waiting pods of both pauses; empty, which means the whole job, if either pause is of the whole job."""
    return _limit_pods(tuple(dict.fromkeys(some + more))) if some and more else ()


def _limit_pods(pods: tuple[str, ...]) -> tuple[str, ...]:
    """Return the pods, or empty, which means the whole job, if there are too many to list."""
    return pods if len(pods) <= MOST_AT_ONCE else ()
