"""The owner of each port that a job chose itself, where the pods of all jobs share one machine.

One rule: pure. While another job has one of its ports, a job is not in the order of its queue, and blocks no other
job. So two jobs with one port are not admitted together.

First come the jobs that hold room. Then come the jobs that can be admitted: first the jobs that had their ports before,
since they may have been picked a moment ago, and then the other jobs by their age. A job that cannot be admitted gets
only ports that no other job wants. A job gets all of its ports or none.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from crds.keys import JobKey
from crds.torchjob.demand import HostPort

Owners = Mapping[HostPort, JobKey]


@dataclass(frozen=True, slots=True)
class PortClaim:
    """A job and the ports that it chose, or that are reserved for it."""

    key: JobKey
    ports: frozenset[HostPort]
    holds: bool
    """Whether it is admitted, or has pods that hold room."""
    can_go: bool = True
    """Whether it may be picked as soon as there is room, apart from its ports."""
    age: tuple[float, str] = (0.0, "")


def owners(claims: Iterable[PortClaim], before: Owners) -> Owners:
    """Return to which job each port belongs; `before` is the last result."""
    former = set(before.values())
    result: dict[HostPort, JobKey] = {}
    for claim in sorted(claims, key=lambda each: (not each.holds, not each.can_go, each.key not in former, each.age)):
        if claim.holds or all(taken_by(port, claim.key, result) is None for port in claim.ports):
            result |= {port: result.get(port, claim.key) for port in claim.ports}
    return result


def taken_by(port: HostPort, key: JobKey, owners: Owners) -> JobKey | None:
    """Return the other job that has this port, or a port that cannot be used beside this port; None if there is no such
    job.
    """
    return next((owner for other, owner in owners.items() if owner != key and port.conflicts(other)), None)
