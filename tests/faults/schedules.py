"""What is done to whom, and when: a schedule of faults as a value and as one line of text.

One rule: a schedule is everything that a run depends on; the same text is the same run.

    scenario[/backend][~seed][!fault@call[,fault@call ...]]        quota/memory~7!kill>@31,flush@44

Seed 0 is the steady order; any other shuffles who goes next, and how late caches are. Calls are counted over all
processes from 1. Faults:

    kill<    the process dies before the call takes effect
    kill>    it dies after that, before it sees the answer
    lost     the call takes effect, the caller gets an error
    fail     the call takes no effect, the caller gets an error
    again    the request is sent twice; the caller sees the second answer
    stop     the process stands still beyond every lease, then goes on
    hang     the call takes as long as that, while the rest of the process goes on
    yield    the call waits while others take a few steps
    flush    the queue store loses everything before the call
    lag      the process's caches hear of nothing for a while
    user     the job's owner takes the next step before the call
"""

import re
from dataclasses import dataclass, replace
from typing import Literal, get_args

Kind = Literal["kill<", "kill>", "lost", "fail", "again", "stop", "hang", "yield", "flush", "lag", "user"]
KINDS: tuple[Kind, ...] = get_args(Kind)
ZOMBIES = frozenset({"stop", "hang"})
"""Faults after which a process acts on what it knew before its leases ran out."""
WAITS = ZOMBIES | {"yield"}
"""Faults that make a call wait."""
Backend = Literal["memory", "redis", "fakeredis"]
_TEXT = re.compile(r"(?P<scenario>[a-z-]+)(/(?P<backend>[a-z]+))?(~(?P<seed>\d+))?(!(?P<faults>.+))?")


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """One fault."""

    at: int
    kind: Kind

    def __str__(self) -> str:
        return f"{self.kind}@{self.at}"


@dataclass(frozen=True, slots=True)
class Schedule:
    """One run."""

    scenario: str
    backend: Backend = "memory"
    seed: int = 0
    faults: tuple[Fault, ...] = ()

    def __str__(self) -> str:
        faults = "!" + ",".join(map(str, self.faults)) if self.faults else ""
        seed = f"~{self.seed}" if self.seed else ""
        return f"{self.scenario}/{self.backend}{seed}{faults}"

    @classmethod
    def parse(cls, text: str) -> "Schedule":
        """Read it back; ValueError for anything else."""
        found = _TEXT.fullmatch(text.strip())
        if found is None:
            raise ValueError(f"not a schedule: {text!r}")
        faults = tuple(_fault(each) for each in (found["faults"] or "").split(",") if each)
        backend = found["backend"] or "memory"
        if backend not in get_args(Backend):
            raise ValueError(f"{backend!r} is none of {', '.join(get_args(Backend))}")
        return cls(found["scenario"], backend, int(found["seed"] or 0), faults)  # type: ignore[arg-type]

    @property
    def zombies(self) -> bool:
        """Whether somebody acts beyond its leases."""
        return any(fault.kind in ZOMBIES for fault in self.faults)

    def without(self, fault: Fault) -> "Schedule":
        """The same with one fault less."""
        return replace(self, faults=tuple(each for each in self.faults if each != fault))


def _fault(text: str) -> Fault:
    kind, _, at = text.partition("@")
    if kind not in KINDS or not at.isdecimal():
        raise ValueError(f"not a fault: {text!r}; kinds: {' '.join(KINDS)}")
    return Fault(int(at), kind)  # type: ignore[arg-type]
