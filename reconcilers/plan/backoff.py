"""How far apart the restarts of one job are: a back-off per job, as a kubelet has one per container.

One rule: pure; what a pause depends on is in the job's status, in the patch that counts the failure, so a worker that
dies in between, or another one that goes on, keeps to it.

Only a restart that raises `restartCount` makes the job back off. The first one is immediate, as a kubelet's; the pause
then doubles until the job has run for 10 minutes:

    consecutive restart     1   2   3   4   5    6    7    8 ..
    seconds, at most        0  10  20  40  80  160  320  360 ..

Up to a quarter of each is left out, by the job's uid and the number, so that jobs that failed together are not
restarted together. A failure of another pod while the job backs off belongs to the same trouble: its pod waits too, and
the pause grows no longer.

Disruptions do not back off. They are spaced where there are many: 10 at once, then one in 10 seconds. Nobody evicts a
pod of one job that often for long, but a template can ask for a node that will not take its pods.
"""

import hashlib
import math
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from crds.keys import JobKey
from crds.torchjob import conditions
from crds.torchjob.status import MOST_AT_ONCE, TorchJobStatus
from reconcilers.settings import ReconcileSettings

RUNS_WELL = 600.0
"""Seconds a job has to run until its restarts before are forgotten: twice a kubelet's longest back-off."""
JITTER = 0.25
"""The largest part of a pause that is left out."""
DISRUPTIONS_AT_ONCE = 10
DISRUPTION_SECONDS = 10.0
"""One more disruption is free in so many seconds."""


def pause(key: JobKey, number: int, settings: ReconcileSettings) -> float:
    """Seconds before a job's n-th restart in a row, from 1."""
    if number <= 1:
        return 0.0
    seconds = min(settings.longest_restart_backoff, settings.restart_backoff * 2.0 ** min(number - 2, 64))
    return seconds * (1.0 - _jitter(key, number))


def _jitter(key: JobKey, number: int) -> float:
    digest = hashlib.sha256(f"{key.uid}/restart/{number}".encode()).digest()
    return JITTER * int.from_bytes(digest[:4], "big") / 2**32


def left(status: TorchJobStatus, settings: ReconcileSettings, now: datetime) -> float:
    """Seconds until a job has backed off; 0 if it does not. A pause longer than any is not counted: a clock was set
    back, or an admin has shortened the setting since."""
    if status.restart_not_before is None:
        return 0.0
    seconds = (status.restart_not_before - now).total_seconds()
    return seconds if 0 < seconds <= _longest(settings) else 0.0


def _longest(settings: ReconcileSettings) -> float:
    """Seconds; times in a status are whole seconds."""
    return math.ceil(max(settings.longest_restart_backoff, DISRUPTION_SECONDS)) + 1.0


def waits(status: TorchJobStatus, pod: str, settings: ReconcileSettings, now: datetime) -> bool:
    """Whether a pod that is missing is not to be made yet."""
    return left(status, settings, now) > 0 and (not status.backing_off or pod in status.backing_off)


def waits_whole(status: TorchJobStatus, settings: ReconcileSettings, now: datetime) -> bool:
    """Whether all of a job backs off."""
    return left(status, settings, now) > 0 and not status.backing_off


def until_well(status: TorchJobStatus, now: datetime) -> float | None:
    """Seconds until a job has run for so long that its restarts before are forgotten, 0 or less if it has; None if it
    does not run, or there is nothing to forget."""
    if status.restart_not_before is None and not status.consecutive_restarts:
        return None
    ran = conditions.find(status.conditions, "Running")
    if ran is None or ran.status != "True":
        return None
    since = max(ran.last_transition_time, status.restart_not_before or ran.last_transition_time)
    return RUNS_WELL - (now - since).total_seconds()


def next(status: TorchJobStatus, settings: ReconcileSettings, now: datetime) -> float | None:
    """Seconds until time alone changes anything: the pause is over, or the restarts before it are forgotten."""
    if status.restart_not_before is None and not status.consecutive_restarts:
        return None
    times = (left(status, settings, now), until_well(status, now) or 0.0)
    return min((each for each in times if each > 0), default=None)


def forgotten(status: TorchJobStatus, now: datetime) -> TorchJobStatus:
    """The same without a back-off, if the job has run well."""
    seconds = until_well(status, now)
    if seconds is None or seconds > 0:
        return status
    return status.model_copy(update={"restart_not_before": None, "backing_off": (), "consecutive_restarts": 0})


def counted(
    key: JobKey, before: TorchJobStatus, pods: Iterable[str], settings: ReconcileSettings, now: datetime
) -> dict[str, Any]:
    """What a restart that counts changes in the status; `pods` are those that wait, by name, none: all of the job."""
    known = forgotten(before, now)
    if left(known, settings, now) > 0:
        return {"backing_off": _together(known.backing_off, tuple(pods))}
    number = known.consecutive_restarts + 1
    return {
        "restart_not_before": _after(now, pause(key, number, settings)),
        "backing_off": _few(tuple(pods)),
        "consecutive_restarts": number,
    }


def disrupted(
    before: TorchJobStatus, pods: Iterable[str], settings: ReconcileSettings, now: datetime
) -> dict[str, Any]:
    """What a disruption changes in the status: the generic cell rate algorithm (ITU-T I.371), with one time as its
    state. The 11th disruption within a second waits for 10 s, the 12th then for 10 s more.

    A job that backs off goes on doing so; only pods that would be made at once are spaced.
    """
    ahead = timedelta(seconds=DISRUPTION_SECONDS * DISRUPTIONS_AT_ONCE)
    known = before.disruptions_spaced_until or now
    paid = min(max(known, now), now + ahead) + timedelta(seconds=DISRUPTION_SECONDS)
    spaced: dict[str, Any] = {"disruptions_spaced_until": paid}
    seconds = (paid - ahead - now).total_seconds()
    if seconds <= 0 or not settings.restart_backoff:
        return spaced
    if left(before, settings, now) > 0:
        return spaced | {"backing_off": _together(before.backing_off, tuple(pods))}
    return spaced | {"restart_not_before": _after(now, seconds), "backing_off": _few(tuple(pods))}


def at_once(before: TorchJobStatus, now: datetime) -> dict[str, Any]:
    """What the owner's own wish for a restart changes: the pause ends, what it was for is not forgotten."""
    if before.restart_not_before is None or before.restart_not_before <= now:
        return {}
    return {"restart_not_before": _after(now, 0.0), "backing_off": ()}


def over() -> dict[str, Any]:
    """What it changes that a job holds no room any more, or begins anew in it: nothing of it waits."""
    return {"restart_not_before": None, "backing_off": ()}


def said(status: TorchJobStatus, settings: ReconcileSettings, now: datetime) -> str:
    """When a job goes on, as the end of a sentence; empty if at once."""
    if left(status, settings, now) <= 0 or status.restart_not_before is None:
        return ""
    who = "pods are" if status.backing_off else "all pods are"
    when = status.restart_not_before.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return f"; back-off: {who} made again at {when}"


def _after(now: datetime, seconds: float) -> datetime:
    """A time of whole seconds, as it is kept; not sooner than asked for, but for what is immediate."""
    whole = now.replace(microsecond=0)
    return whole + timedelta(seconds=math.ceil(seconds + (now - whole).total_seconds())) if seconds > 0 else whole


def _together(some: tuple[str, ...], more: tuple[str, ...]) -> tuple[str, ...]:
    """The pods that wait; all of the job where that is what either says."""
    return _few(tuple(dict.fromkeys(some + more))) if some and more else ()


def _few(pods: tuple[str, ...]) -> tuple[str, ...]:
    """As many as are listed one by one; of more, all of the job waits."""
    return pods if len(pods) <= MOST_AT_ONCE else ()
