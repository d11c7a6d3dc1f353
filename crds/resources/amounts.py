"""Amounts of resources: exact integers by canonical resource name.

One rule: canonical names only (`cpu`, `memory`, `nvidia.com/gpu`, `pods`, `jobs`; a ResourceQuota's `requests.` prefix
is dropped at the door) and canonical units only: cpu in thousandths of a core, everything else in whole units (bytes,
devices, jobs) rounded up. Milli-units for memory would pass 2**53 at 8 TiB and lose exactness in Lua; a scheduler
counts the same way.
"""

import math
from collections.abc import Container, Mapping
from types import MappingProxyType

Amounts = Mapping[str, int]

JOBS = "jobs"
"""The name under which a queue's limit on admitted jobs is counted: every job costs one."""

PODS = "pods"
"""The name under which pods are counted: every pod asks for one, and a node offers as many as it may run."""

OTHERS = "*"
"""In a limit: how much there is of every resource that it does not name, `jobs` apart. Without it those are free."""

_FREE = math.inf

NOTHING: Amounts = MappingProxyType({})


def add(left: Amounts, right: Amounts) -> dict[str, int]:
    """The sum, name by name."""
    return {name: left.get(name, 0) + right.get(name, 0) for name in left.keys() | right.keys()}


def increase(total: dict[str, int], amounts: Amounts, times: int = 1) -> None:
    """Add amounts, so many times, to a total in place: the work is that of the amounts, however many names it has."""
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + times * amount


def only(amounts: Amounts, names: Container[str] | None) -> Amounts:
    """The amounts of these names; None: all of them."""
    return amounts if names is None else {name: amount for name, amount in amounts.items() if name in names}


def subtract(left: Amounts, right: Amounts) -> dict[str, int]:
    """Left minus right, name by name; may be negative (a quota lowered below its usage)."""
    return {name: left.get(name, 0) - right.get(name, 0) for name in left.keys() | right.keys()}


def scale(amounts: Amounts, times: int) -> dict[str, int]:
    """Every amount multiplied by a count."""
    return {name: amount * times for name, amount in amounts.items()}


def peak(left: Amounts, right: Amounts) -> dict[str, int]:
    """The larger of both, name by name."""
    return {name: max(left.get(name, 0), right.get(name, 0)) for name in left.keys() | right.keys()}


def fits(demand: Amounts, used: Amounts, limit: Amounts) -> bool:
    """Whether demand on top of what is used stays within a limit; names the limit does not mention are free, but for
    OTHERS. The work is that of the shorter one of demand and limit."""
    if len(limit) <= len(demand) and OTHERS not in limit:
        for name, most in limit.items():
            asked = demand.get(name, 0)
            if asked > 0 and used.get(name, 0) + asked > most:
                return False
        return True
    others = limit.get(OTHERS, _FREE)
    for name, asked in demand.items():
        if asked > 0:
            allowed = limit.get(name, _FREE if name == JOBS else others)
            if used.get(name, 0) + asked > allowed:
                return False
    return True


def most(limit: Amounts, name: str) -> int | None:
    """How much of a name a limit allows; None if it does not limit it."""
    found = limit.get(name)
    return limit.get(OTHERS) if found is None and name != JOBS else found
