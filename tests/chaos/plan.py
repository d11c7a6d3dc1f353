"""The plan of a run, made before the run begins: its jobs and faults, each with its time.

One rule: this module is pure. The same seed, length and kinds of faults give the same plan, so runs can be repeated.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

KILLED = ("leader", "standby", "worker", "workers", "redis", "apiserver", "node")
STOPPED = ("leader", "worker", "redis", "apiserver", "node")
LINKED = ("leader", "standby", "workers")
API_TROUBLES = ("cut", "delay", "refuse", "forget", "gone")
REDIS_TROUBLES = ("cut", "delay", "away", "forget")
FAILOVERS = ("kill", "stop", "failover", "stale", "cutoff", "silence")
FAULTS: dict[str, tuple[str, ...]] = {
    "kill": KILLED,
    "stop": STOPPED,
    "nap": STOPPED,
    "flush": ("redis",),
    "lose": ("redis",),
    "age": ("redis",),
    "api": LINKED,
    "redis": LINKED,
    "stall": LINKED,
    "rotate": ("soft", "hard"),
    "sentinel": FAILOVERS,
}
"""The kinds of faults and their possible targets.

    kill   kill -9; it is started again
    stop   SIGSTOP for longer than every lease, then SIGCONT
    nap    SIGSTOP for less than a lease
    flush  FLUSHALL
    lose   Redis is killed and its append-only file deleted
    age    Redis is killed and starts with the file as it was a second or two earlier
    api    trouble between one process and the API server: connections cut, answers delayed, refusals before an effect
           (409, 410, 429, 500, 503, silence) and after it, watches ended by 410
    redis  the same towards Redis: connections cut, delayed, refused, answers lost
    stall  all traffic between one process and the API server stands still for longer than every lease, then continues
    rotate the password of torchq in Redis is replaced: with a time in which both are valid (soft), or at once, and the
           URL files have the new one later (hard)

Only with a Sentinel installation, in which "redis" is the current master:
    sentinel  the master is killed and stays away (kill) or sleeps (stop) for longer than a failover takes; a failover
              by hand; the replicas are cut off and then one is promoted (stale); the master is cut off from sentinels
              and replicas, and not from its clients (cutoff); all sentinels are killed and stay away (silence)
"""
ONE_SERVER = tuple(kind for kind in FAULTS if kind != "sentinel")
"""The faults of a run with one Redis server."""
WITH_SENTINELS = tuple(kind for kind in FAULTS if kind not in ("age", "redis"))
"""The faults of a run with a Sentinel installation. The processes of torchq have no proxies to Redis then."""
QUEUES: dict[str, dict[str, int]] = {"bound": {"jobs": 2}, "small": {"cpu": 2000}, "free": {}}
"""Tenant queues and their quotas (cpu in thousandths)."""
WEIGHTS = {"bound": 2, "small": 1, "free": 3}
CPUS = 6
"""The CPUs of the node, which are the pool."""
STORE_CPU = 50
"""The CPU of a rendezvous store (in thousandths)."""
MOST_WORKERS = 4
_JOBS_PER_SECOND = 1.0
_ELASTIC_JOBS_PER_SECOND = 0.2
_LONGEST_JOB = 2.0


@dataclass(frozen=True, slots=True)
class Deed:
    """An action of the owner on a job."""

    at: float
    verb: str
    """The action: suspend, resume, delete, or scale to a number of workers."""
    workers: int = 0
    """The number of workers to which the job is scaled."""


@dataclass(frozen=True, slots=True)
class Job:
    """A TorchJob with one CPU per pod."""

    at: float
    name: str
    queue: str
    workers: int
    seconds: float
    code: int
    """The exit code of the job's master."""
    deeds: tuple[Deed, ...] = ()
    elastic: bool = False
    """Whether the number of workers of the job may change. Such a job has a rendezvous store and no master."""

    def charge(self, workers: int | None = None) -> dict[str, int]:
        """Return the room in quota and pool that the job uses while it is admitted. `workers` is the number of workers
        of an elastic job.
        """
        if self.elastic:
            return {"jobs": 1, "cpu": STORE_CPU + 1000 * (self.workers if workers is None else workers)}
        return {"jobs": 1, "cpu": 1000 * (1 + self.workers)}

    @property
    def deleted(self) -> bool:
        """Whether the owner deletes the job."""
        return any(deed.verb == "delete" for deed in self.deeds)


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault that begins at the time `at`. A fault of a kind that lasts takes `seconds`."""

    at: float
    kind: str
    target: str
    seconds: float
    trouble: str = ""

    @property
    def pauses(self) -> bool:
        """Whether the fault pauses a process for longer than a lease. Only then may a quota be exceeded for a
        moment.
        """
        return self.kind in ("stop", "stall")

    def __str__(self) -> str:
        trouble = f" {self.trouble}" if self.trouble else ""
        lasting = f" for {self.seconds:.1f} s" if self.seconds else ""
        return f"{self.kind}:{self.target}{trouble}{lasting}"


@dataclass(frozen=True, slots=True)
class Plan:
    """The jobs and the faults of a run."""

    jobs: tuple[Job, ...]
    faults: tuple[Fault, ...]


def make(seed: int, seconds: float, kinds: Sequence[str], *, lease: float, every: float) -> Plan:
    """Return a plan of `seconds` with a fault every `every` seconds on average.

    Raises ValueError for an unknown kind.
    """
    wrong = [kind for kind in kinds if kind.partition(":")[0] not in FAULTS]
    if wrong:
        raise ValueError(f"no such fault: {', '.join(wrong)}; there are {', '.join(FAULTS)}, each also as kind:target")
    # Three random generators: the jobs do not depend on the kinds of faults.
    found = (*_jobs(random.Random(f"{seed} jobs"), seconds), *_elastic_jobs(random.Random(f"{seed} elastic"), seconds))
    return Plan(found, _faults(random.Random(seed), seconds, kinds, lease, every))


def _jobs(dice: random.Random, seconds: float) -> tuple[Job, ...]:
    made: list[Job] = []
    at = 0.0
    while at < seconds:
        made.append(_job(dice, at, len(made)))
        at += dice.expovariate(_JOBS_PER_SECOND)
    return tuple(made)


def _job(dice: random.Random, at: float, number: int) -> Job:
    queue = dice.choice(list(QUEUES))
    workers = dice.choice((0, 0, 1, 1, 2)) if queue != "small" else dice.choice((0, 0, 1))
    code = 3 if dice.random() < 0.05 else 0
    seconds = dice.uniform(0.1, _LONGEST_JOB)
    return Job(at, f"{queue}-{number}", queue, workers, seconds, code, _deeds(dice, at))


def _elastic_jobs(dice: random.Random, seconds: float) -> tuple[Job, ...]:
    made: list[Job] = []
    at = dice.uniform(0.0, 1.0)
    while at < seconds:
        scales = tuple(
            Deed(at + dice.uniform(1.0, 7.0), "scale", dice.randint(1, MOST_WORKERS)) for _ in range(dice.randint(1, 4))
        )
        name, queue = f"elastic-{len(made)}", dice.choice(("bound", "free"))
        made.append(Job(at, name, queue, dice.randint(1, 3), dice.uniform(4.0, 8.0), 0, scales, elastic=True))
        at += dice.expovariate(_ELASTIC_JOBS_PER_SECOND)
    return tuple(made)


def _deeds(dice: random.Random, at: float) -> tuple[Deed, ...]:
    fate, wait = dice.random(), dice.uniform(0.2, 4.0)
    if fate < 0.1:
        return (Deed(at + wait, "delete"),)
    if fate < 0.25:
        return Deed(at + wait, "suspend"), Deed(at + wait + dice.uniform(0.2, 3.0), "resume")
    return ()


def _faults(dice: random.Random, seconds: float, kinds: Sequence[str], lease: float, every: float) -> tuple[Fault, ...]:
    made: list[Fault] = []
    at = min(3.0, seconds / 4)
    while kinds and at < seconds:
        made.append(_fault(dice, at, dice.choice(list(kinds)), lease))
        at += dice.uniform(0.3, 1.7) * every
    return tuple(made)


def _fault(dice: random.Random, at: float, wanted: str, lease: float) -> Fault:
    kind, _, target = wanted.partition(":")
    target = target or dice.choice(FAULTS[kind])
    match kind:
        case "stop" | "stall":
            return Fault(at, kind, target, lease + dice.uniform(1.0, 3.0))
        case "nap":
            return Fault(at, kind, target, dice.uniform(0.2, 0.5) * lease)
        case "kill":
            return Fault(at, kind, target, dice.choice((0.0, 0.0, 2.0)))
        case "age":
            return Fault(at, kind, target, dice.uniform(0.5, 2.0))
        case "api":
            return Fault(at, kind, target, dice.uniform(1.0, 4.0), dice.choice(API_TROUBLES))
        case "rotate":
            return Fault(at, kind, target, dice.uniform(1.0, 4.0))
        case "sentinel":
            return Fault(at, kind, target, _failover_seconds(dice, target))
        case "redis":
            return Fault(at, kind, target, dice.uniform(1.0, 4.0), dice.choice(REDIS_TROUBLES))
    return Fault(at, kind, target, 0.0)


def _failover_seconds(dice: random.Random, target: str) -> float:
    match target:
        case "failover":
            return 0.0
        case "stale":
            return dice.uniform(0.5, 4.0)
    return dice.uniform(3.0, 8.0)
