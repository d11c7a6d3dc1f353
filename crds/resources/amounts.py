"""Amounts of resources: exact integers by canonical resource name.

One rule: canonical names only (`cpu`, `memory`, `nvidia.com/gpu`, `pods`, `jobs`; a ResourceQuota's `requests.` prefix
is removed when the quota is read) and canonical units only. cpu is counted in thousandths of a core, everything else in
whole units (bytes, devices, jobs), rounded up. Milli-units for memory would pass 2**53 at 8 TiB and lose exactness in
Lua; the Kubernetes scheduler counts in the same units.
"""

import math
from collections.abc import Container, Mapping
from types import MappingProxyType

Amounts = Mapping[str, int]

JOBS = "jobs"
"""The resource name of admitted jobs in a queue's quota: every job costs one."""

PODS = "pods"
"""The resource name of pods: every pod requests one, and a node offers as many as it may run."""

OTHERS = "*"
"""The name that limits every resource which the limit does not list, except `jobs` and the devices of claims.

Without this name, unlisted resources are unlimited.
"""

DEVICES = ".deviceclass.resource.k8s.io/devices"
"""The end of the name under which the devices of a DeviceClass count that resource claims ask for, as in a
ResourceQuota. No node offers such names, so only a limit that lists one of them limits it."""

_FREE = math.inf

NOTHING: Amounts = MappingProxyType({})


def add(left: Amounts, right: Amounts) -> dict[str, int]:
    """Return the sum of both amounts, name by name."""
    return {name: left.get(name, 0) + right.get(name, 0) for name in left.keys() | right.keys()}


def increase(total: dict[str, int], amounts: Amounts, times: int = 1) -> None:
    """Add amounts, multiplied by a number, to a total in place.

    The time depends on the number of names in the amounts, not in the total.
    """
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + times * amount


def increase_limited(total: dict[str, int], amounts: Amounts, limit: Amounts) -> None:
    """Add the amounts of the resources in a limit to a total. Jobs may name any number of other resources."""
    for name, amount in amounts.items():
        if name in limit:
            total[name] = total.get(name, 0) + amount


def select(amounts: Amounts, names: Container[str] | None) -> Amounts:
    """Return the amounts with these names, or all amounts if names is None."""
    return amounts if names is None else {name: amount for name, amount in amounts.items() if name in names}


def subtract(left: Amounts, right: Amounts) -> dict[str, int]:
    """Return left minus right, name by name; a result may be negative (a quota lowered below its usage)."""
    return {name: left.get(name, 0) - right.get(name, 0) for name in left.keys() | right.keys()}


def scale(amounts: Amounts, times: int) -> dict[str, int]:
    """Return every amount multiplied by a count."""
    return {name: amount * times for name, amount in amounts.items()}


def peak(left: Amounts, right: Amounts) -> dict[str, int]:
    """Return the larger of the two amounts, name by name."""
    return {name: max(left.get(name, 0), right.get(name, 0)) for name in left.keys() | right.keys()}


def fits(demand: Amounts, used: Amounts, limit: Amounts) -> bool:
    """Return whether used plus demand stays within a limit.

    A name that the limit does not list is unlimited, unless the limit has OTHERS. The time depends on the shorter of
    demand and limit.
    """
    if len(limit) <= len(demand) and OTHERS not in limit:
        for name, most in limit.items():
            amount = demand.get(name, 0)
            if amount > 0 and used.get(name, 0) + amount > most:
                return False
        return True
    others = limit.get(OTHERS, _FREE)
    for name, amount in demand.items():
        if amount > 0:
            allowed = limit.get(name, _FREE if _is_apart(name) else others)
            if used.get(name, 0) + amount > allowed:
                return False
    return True


def limit_for(limit: Amounts, name: str) -> int | None:
    """Return the amount of a resource that a limit allows, or None if the limit does not restrict it."""
    limit_of_name = limit.get(name)
    return limit.get(OTHERS) if limit_of_name is None and not _is_apart(name) else limit_of_name


def _is_apart(name: str) -> bool:
    """Return whether OTHERS does not limit a resource."""
    return name == JOBS or name.endswith(DEVICES)
