"""Which resources a store counts in its sums of usage.

One rule: a user cannot add a name to them. Every commit and every snapshot reads the sums, so sums over names that
jobs make up would slow the picks of all queues.

Names that limit nothing need no sum. Those that a limit names are counted always; the standard ones are counted for
people, too. A charge in a reservation keeps all its names: when a name begins to count, the sums are counted again from
the reservations.
"""

from collections.abc import Iterable

from crds.resources.amounts import JOBS, OTHERS, PODS, Amounts
from queues.values import QueueSpec

STANDARD = frozenset((JOBS, PODS, "cpu", "memory", "ephemeral-storage", "nvidia.com/gpu", "amd.com/gpu"))
"""Resources whose usage is shown though nothing limits them."""


def names(specs: Iterable[QueueSpec], pool: Amounts | None, also: Iterable[str] = ()) -> frozenset[str]:
    """The names that count: those of all quotas and of the pool, the standard ones, and `also` these."""
    return STANDARD.union(pool or (), also, *(spec.quota for spec in specs)) - {OTHERS}
