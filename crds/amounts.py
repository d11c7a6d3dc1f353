"""Amounts of resources: exact integers by canonical resource name.

One rule: canonical names only (`cpu`, `memory`, `nvidia.com/gpu`, `pods`, `jobs`; a ResourceQuota's `requests.` prefix
is dropped at the door) and canonical units only: cpu in thousandths of a core, everything else in whole units (bytes,
devices, jobs) rounded up. Milli-units for memory would pass 2**53 at 8 TiB and lose exactness in Lua; a scheduler
counts the same way.
"""

from collections.abc import Mapping
from types import MappingProxyType

Amounts = Mapping[str, int]

JOBS = "jobs"
"""The name under which a queue's limit on admitted jobs is counted: every job costs one."""

PODS = "pods"
"""The name under which pods are counted: every pod asks for one, and a node offers as many as it may run."""

NOTHING: Amounts = MappingProxyType({})


def add(left: Amounts, right: Amounts) -> dict[str, int]:
    """The sum, name by name."""
    return {name: left.get(name, 0) + right.get(name, 0) for name in left.keys() | right.keys()}


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
    """Whether demand on top of what is used stays within a limit; names the limit does not mention are free."""
    for name, most in limit.items():
        asked = demand.get(name, 0)
        if asked > 0 and used.get(name, 0) + asked > most:
            return False
    return True
