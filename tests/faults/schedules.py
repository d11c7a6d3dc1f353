"""Schedules of faults, as values and as one line of text.

One rule: a run depends on its schedule alone, so the same text gives the same run.

    scenario[/backend][~seed][!fault@call[,fault@call ...]]        quota/memory~7!kill>@31,flush@44

Seed 0 is the steady order. Any other seed shuffles the order of processes and the delays of caches. Calls are counted
from 1 over all processes. Faults:

    kill<    the process dies before the call takes effect
    kill>    the process dies after the effect of the call, before it gets the answer
    lost     the call takes effect, the caller gets an error
    fail     the call takes no effect, the caller gets an error
    again    the request is sent twice; the caller gets the second answer
    stop     the process stands still for longer than every lease, then continues
    hang     the call takes longer than every lease, while the rest of the process continues
    yield    the call waits while other processes take a few steps
    flush    the queue store loses all data before the call
    lag      the process's caches get no events for a while
    user     the job's owner takes the next step before the call
"""

import re
from dataclasses import dataclass, replace
from typing import Literal, get_args

Kind = Literal["kill<", "kill>", "lost", "fail", "again", "stop", "hang", "yield", "flush", "lag", "user"]
KINDS: tuple[Kind, ...] = get_args(Kind)
ZOMBIES = frozenset({"stop", "hang"})
"""Faults after which a process acts on outdated knowledge, from before its leases ended."""
WAITS = ZOMBIES | {"yield"}
"""Faults that make a call wait."""
Backend = Literal["memory", "redis", "fakeredis"]
_TEXT = re.compile(r"(?P<scenario>[a-z-]+)(/(?P<backend>[a-z]+))?(~(?P<seed>\d+))?(!(?P<faults>.+))?")


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """A fault at one call."""

    at: int
    kind: Kind

    def __str__(self) -> str:
        return f"{self.kind}@{self.at}"


@dataclass(frozen=True, slots=True)
class Schedule:
    """A run: its scenario, backend, order and faults."""

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
        """Parse the text of a schedule. Raises ValueError if the text is no schedule."""
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
        """Whether a process acts after its leases have ended."""
        return any(fault.kind in ZOMBIES for fault in self.faults)

    def without(self, fault: Fault) -> "Schedule":
        """Return the schedule without this fault."""
        return replace(self, faults=tuple(each for each in self.faults if each != fault))


def _fault(text: str) -> Fault:
    kind, _, at = text.partition("@")
    if kind not in KINDS or not at.isdecimal():
        raise ValueError(f"not a fault: {text!r}; kinds: {' '.join(KINDS)}")
    return Fault(int(at), kind)  # type: ignore[arg-type]
