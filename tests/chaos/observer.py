"""The observer adds up the room in use several times a second, from the cluster alone.

One rule: all room in a sum was in use at one moment. The observer reads the jobs, the pods, and the jobs again. A job
with the same admission before and after held this admission in between, too. A pod that has not ended uses room.
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import redis

from crds import labels
from crds.api_resources import PODS, TORCHJOBS
from kube import errors
from kube.client import KubernetesCluster
from tests.chaos import plan

PAUSE_SECONDS = 0.4
FINAL = ("Succeeded", "Failed")
Manifest = Mapping[str, Any]
Counted = dict[str, dict[str, int]]
POOL = "(pool)"


@dataclass(frozen=True)
class Sight:
    """A snapshot: the jobs, the pods, the jobs again, and then the reservations."""

    before: dict[str, Manifest]
    pods: list[Manifest]
    after: dict[str, Manifest]
    charged: frozenset[str] = frozenset()
    """The names of the jobs with a reservation in Redis."""


def holders(sight: Sight) -> dict[str, str]:
    """Return the jobs that were admitted while the pods were read, each with the queue of its admission."""
    found = {}
    for name, job in sight.after.items():
        admission = _admission(job)
        if admission and not _finished(job) and _admission(sight.before.get(name, {})) == admission:
            found[name] = str(admission["queue"])
    return found


def taken(sight: Sight, jobs: Mapping[str, plan.Job], cpus: int = plan.CPUS) -> Counted:
    """Return the room of each queue and of the pool that is in use."""
    charges = {
        name: (queue, jobs[name].charge(_admission(sight.after[name]).get("workers")))
        for name, queue in holders(sight).items()
    }
    for pod in sight.pods:
        marks = pod["metadata"]["labels"]
        name = marks[labels.JOB_NAME]
        if not _occupies(pod) or name in holders(sight):
            continue
        _, charge = charges.setdefault(name, (marks[labels.QUEUE], {"jobs": 1, "cpu": 0}))
        # A job without an admission counts by its pods.
        charge["cpu"] += plan.STORE_CPU if marks[labels.TASK_TYPE] == "rendezvous" else 1000
    counted: Counted = {}
    for queue, charge in charges.values():
        for account in (queue, POOL):
            for resource, amount in charge.items():
                of = counted.setdefault(account, {})
                of[resource] = of.get(resource, 0) + amount
    return counted


def exceeded(counted: Counted, cpus: int = plan.CPUS) -> list[str]:
    """Return messages about queues and pools in which more room is in use than their limit."""
    limits = plan.QUEUES | {POOL: {"cpu": 1000 * cpus}}
    return [
        f"{account} {resource} {counted.get(account, {}).get(resource, 0)} of {limit}"
        for account, each in limits.items()
        for resource, limit in each.items()
        if counted.get(account, {}).get(resource, 0) > limit
    ]


def disagreements(sight: Sight) -> set[str]:
    """Return the differences between Redis and the cluster. Each difference may exist for a moment."""
    held = holders(sight)
    occupying = {pod["metadata"]["labels"][labels.JOB_NAME] for pod in sight.pods if _occupies(pod)}
    pods = {f"pod of a foreign attempt: {_foreign(pod, sight)}" for pod in sight.pods if _foreign(pod, sight)}
    free = {f"admitted without a charge: {name}" for name in held if name not in sight.charged}
    leaked = {
        f"charged without an admission: {name}"
        for name in sight.charged
        if name not in held and name not in occupying and not _admission(sight.before.get(name, {}))
    }
    return free | leaked | pods


@dataclass
class Observer:
    """Observes the cluster in a thread of its own. `now` returns the seconds since the run began."""

    api: KubernetesCluster
    charged: Callable[[], frozenset[str]]
    """Return the keys of the jobs with a reservation in Redis."""
    jobs: Mapping[str, plan.Job]
    now: Callable[[], float]
    excused: Callable[[float], bool]
    """Whether a process slept through a lease shortly before this moment, so that a quota may be exceeded."""
    patience: float
    """The longest time, in seconds, for which a difference may last."""
    cpus: int = plan.CPUS
    looks: int = 0
    peak: Counted = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    excuses: list[str] = field(default_factory=list)
    lasting: dict[str, float] = field(default_factory=dict)
    """The current differences, each with the time since which it lasts."""
    longest: dict[str, float] = field(default_factory=dict)
    sizes: dict[str, set[int]] = field(default_factory=dict)
    """The numbers of workers with which each job was seen."""

    @property
    def resized(self) -> int:
        """The number of jobs that were seen with different numbers of workers."""
        return sum(len(each) > 1 for each in self.sizes.values())

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="observer")

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread."""
        self._stop.set()
        self._thread.join()

    def look(self) -> None:
        """Take one snapshot and check it. Raises ClusterError or RedisError if a server does not answer."""
        sight = self._sight()
        self.looks += 1
        now = self.now()
        counted = taken(sight, self.jobs)
        self._remember(counted)
        for name, job in sight.after.items():
            self.sizes.setdefault(name, set()).update(filter(None, (_admission(job).get("workers"),)))
        for each in exceeded(counted, self.cpus):
            (self.excuses if self.excused(now) else self.wrong).append(f"{now:.1f} s: {each}: {_who(sight)}")
        self._disagree(disagreements(sight), now)

    def _disagree(self, seen: set[str], now: float) -> None:
        self.lasting = {each: self.lasting.get(each, now) for each in seen}
        for each, since in self.lasting.items():
            kind = each.partition(":")[0]
            self.longest[kind] = round(max(now - since, self.longest.get(kind, 0.0)), 1)
            if now - since > self.patience and each not in self._told():
                self.wrong.append(f"{since:.1f} s: {each} for more than {self.patience:.0f} s")

    def _told(self) -> str:
        return "\n".join(self.wrong)

    def _remember(self, counted: Counted) -> None:
        for account, amounts in counted.items():
            most = self.peak.setdefault(account, {})
            for resource, amount in amounts.items():
                most[resource] = max(amount, most.get(resource, 0))

    def _sight(self) -> Sight:
        before = _by_name(self.api.list(TORCHJOBS).items)
        pods = self.api.list(PODS, label_selector=labels.JOB_UID).items
        after = _by_name(self.api.list(TORCHJOBS).items)
        return Sight(before, pods, after, frozenset(key.split("/")[1] for key in self.charged()))

    def _run(self) -> None:
        while not self._stop.wait(PAUSE_SECONDS):
            try:
                self.look()
            except (errors.ClusterError, redis.RedisError):
                continue
            except Exception as error:  # a dead observer would report no fault
                self.wrong.append(f"the observer failed: {type(error).__name__}: {error}")


def clock() -> Callable[[], float]:
    """Return a function that returns the seconds since this call."""
    began = time.monotonic()
    return lambda: time.monotonic() - began


def _by_name(items: list[Any]) -> dict[str, Manifest]:
    return {item["metadata"]["name"]: item for item in items}


def _admission(job: Manifest) -> Manifest:
    found: Manifest = (job.get("status") or {}).get("admission") or {}
    return found


def _finished(job: Manifest) -> bool:
    return (job.get("status") or {}).get("phase") in FINAL


def _occupies(pod: Manifest) -> bool:
    return (pod.get("status") or {}).get("phase") not in FINAL


def _foreign(pod: Manifest, sight: Sight) -> str:
    """Return the name and attempt of a pod whose job is admitted with another attempt; else the empty string."""
    marks = pod["metadata"]["labels"]
    name = marks[labels.JOB_NAME]
    admission = _admission(sight.after.get(name, {}))
    if name in holders(sight) and str(admission["attempt"]) != marks[labels.ATTEMPT]:
        return f"{pod['metadata']['name']} of attempt {marks[labels.ATTEMPT]}"
    return ""


def _who(sight: Sight) -> str:
    pods = sorted(
        f"{pod['metadata']['name']}@{pod['metadata']['labels'][labels.ATTEMPT]}" for pod in sight.pods if _occupies(pod)
    )
    return f"admitted {', '.join(sorted(holders(sight)))}; pods {', '.join(pods)}"
