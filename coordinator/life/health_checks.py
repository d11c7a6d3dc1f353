"""The checks behind /healthz and /readyz, and the text of both, as kube-apiserver writes it.

One rule: pure. Every check is listed, failed or not, and a check that fails has its reason.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, NamedTuple, Protocol

HEALTHZ, READYZ = "healthz", "readyz"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that a probe looks at."""

    name: str
    problem: str = ""
    """Why the check fails; empty if it passes."""
    note: str = ""
    """What is wrong elsewhere, such as a Redis that is away: it fails no check, since no restart would help."""


PING = Check("ping")
"""The process answers."""


class Probes(Protocol):
    """The checks that a process offers about itself. Neither method waits for anything."""

    def healthz(self) -> Sequence[Check]:
        """Return the checks whose failure asks for a restart of the process."""

    def readyz(self) -> Sequence[Check]:
        """Return the checks that pass once the process does its work."""


class ProbeAnswer(NamedTuple):
    """The answer to a probe."""

    code: int
    text: str


def answer(probes: Probes, path: str, query: str) -> ProbeAnswer | None:
    """Return the answer to a probe; None for another path. `?verbose` lists all checks, and so does a failure."""
    name = path.strip("/")
    if name not in (HEALTHZ, READYZ):
        return None
    checks = (PING, *(probes.healthz() if name == HEALTHZ else probes.readyz()))
    failed = any(check.problem for check in checks)
    code = HTTPStatus.SERVICE_UNAVAILABLE if failed else HTTPStatus.OK
    is_verbose = "verbose" in (part.partition("=")[0] for part in query.split("&"))
    if not (failed or is_verbose):
        return ProbeAnswer(code, "ok")
    return ProbeAnswer(code, "\n".join([*map(_line, checks), f"{name} check {'failed' if failed else 'passed'}"]))


def problems(checks: Iterable[Check]) -> str:
    """Return the failed checks, as a line for people; empty if no check fails."""
    return "; ".join(f"{check.name}: {check.problem}" for check in checks if check.problem)


def under(name: str, checks: Iterable[Check]) -> list[Check]:
    """Return the checks of a child process as its supervisor lists them."""
    return [Check(f"{name}/{check.name}", check.problem, check.note) for check in checks]


def to_json(checks: Iterable[Check]) -> list[list[str]]:
    """Return checks as they travel in JSON."""
    return [[check.name, check.problem, check.note] for check in checks]


def from_json(document: Any) -> list[Check]:
    """Return the checks in a document; a check that cannot be read is left out."""
    items = document if isinstance(document, list) else []
    return [
        Check(*item)
        for item in items
        if isinstance(item, list) and len(item) == 3 and all(isinstance(text, str) for text in item)
    ]


def _line(check: Check) -> str:
    if check.problem:
        return f"[-]{check.name} failed: {check.problem}"
    return f"[+]{check.name} ok" + (f" ({check.note})" if check.note else "")
