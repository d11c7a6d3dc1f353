"""The pods that still run or end on this machine, as text.

One rule: this module never ends a pod. The module reads records, and clears the records of an earlier node.
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
"""The most jobs that a text names one by one."""


def running(data: Path) -> tuple[RunningPod, ...]:
    """Return the pods of a data folder that have running processes. The names of these pods are known only while no
    cluster runs there.
    """
    return leftovers.running(Files(data).layout)


def ending(data: Path) -> tuple[EndingPod, ...] | None:
    """Return the pods that end because the cluster goes down; None if the cluster does not go down."""
    return shutdown_record.ending_pods(Files(data).layout)


def clear(data: Path) -> None:
    """Delete the record of an earlier, killed node about pods that were still ending."""
    shutdown_record.clear_ending_pods(Files(data).layout)


def format_count(pods: Iterable[EndingPod | RunningPod]) -> str:
    """Format the number of pods and their jobs: `4 pods of job team/digits`, `3 pods (2 of job team/digits, 1 of job
    team/words)`."""
    pod_list = list(pods)
    number = f"{len(pod_list)} pod{'s' * (len(pod_list) != 1)}"
    jobs = Counter(f"job {pod.namespace}/{pod.job}" for pod in pod_list if pod.job)
    if list(jobs.values()) == [len(pod_list)]:
        return f"{number} of {next(iter(jobs))}"
    parts = [f"{count} of {job}" for job, count in jobs.most_common(SHOWN)]
    more = [f"others of {len(jobs) - SHOWN} more jobs"] if len(jobs) > SHOWN else []
    return f"{number} ({', '.join(parts + more)})" if parts else number


def format_progress(pods: Iterable[EndingPod], now: float) -> str:
    """Format the number of pods that end and the longest remaining time: `1 pod of job team/digits still ends, 41 s at
    most`. `now` is in seconds since 1970."""
    pod_list = list(pods)
    times = [pod.until for pod in pod_list if pod.until is not None]
    verb = "ends" if len(pod_list) == 1 else "end"
    seconds = math.ceil(max(times) - now) if times else None
    limit = "" if seconds is None else f", {seconds} s at most" if seconds > 0 else "; the rest is being killed"
    return f"{format_count(pod_list)} still {verb}{limit}"
