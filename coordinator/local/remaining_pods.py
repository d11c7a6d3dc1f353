"""The pods that still run or end on this machine, in words.

One rule: it only looks.
"""

import math
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from coordinator.local.stack_state import Files
from embedded.node import leftovers
from embedded.node.leftovers import RunningPod
from embedded.node.shutdown import shutdown_record
from embedded.node.shutdown.shutdown_record import EndingPod

SHOWN = 5
"""Jobs that are named one by one."""


def running(data: Path) -> tuple[RunningPod, ...]:
    """The pods of a data folder of which processes run; with their names only while no cluster runs there."""
    return leftovers.running(Files(data).layout)


def ending(data: Path) -> tuple[EndingPod, ...] | None:
    """The pods that end because the cluster goes down; None if none is being ended."""
    return shutdown_record.left(Files(data).layout)


def clear(data: Path) -> None:
    """Forget what an earlier node that was killed had still to end."""
    shutdown_record.clear_left(Files(data).layout)


def counted(pods: Iterable[EndingPod | RunningPod]) -> str:
    """How many pods these are, and of which jobs: `4 pods of job team/digits`, `3 pods (2 of job team/digits, 1 of
    job team/words)`."""
    pod_list = list(pods)
    number = f"{len(pod_list)} pod{'s' * (len(pod_list) != 1)}"
    jobs = Counter(f"job {pod.namespace}/{pod.job}" for pod in pod_list if pod.job)
    if list(jobs.values()) == [len(pod_list)]:
        return f"{number} of {next(iter(jobs))}"
    parts = [f"{count} of {job}" for job, count in jobs.most_common(SHOWN)]
    more = [f"others of {len(jobs) - SHOWN} more jobs"] if len(jobs) > SHOWN else []
    return f"{number} ({', '.join(parts + more)})" if parts else number


def progress(pods: Iterable[EndingPod], now: float) -> str:
    """The same of pods that end, with the longest time that is left: `1 pod of job team/digits still ends, 41 s at
    most`. `now` is in seconds since the epoch."""
    pod_list = list(pods)
    times = [pod.until for pod in pod_list if pod.until is not None]
    verb = "ends" if len(pod_list) == 1 else "end"
    seconds = math.ceil(max(times) - now) if times else None
    limit = "" if seconds is None else f", {seconds} s at most" if seconds > 0 else "; what is left is being killed"
    return f"{counted(pod_list)} still {verb}{limit}"
