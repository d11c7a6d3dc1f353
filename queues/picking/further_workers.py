"""How many further workers a job gets when its turn has come, beside those without which it does not begin.

One rule: pure. A number of workers is allowed only if every smaller one is.

An entry's `demand` is the least that the job takes. Everything before the turn goes by it: whether the job is eligible,
what it claims of its cohort, the room that the pool reserves for it, and loans. When the turn has come, the job takes
as many steps of further workers as its queue, its cohort and the pool allow beside what others claim or have reserved.
Then its queue must win the turn with the cost of all that (`queues.picking.picker`).

A growth is a request of an admitted job. Its `demand` is one step, or all of it if it is granted in whole or not at
all.
"""

from collections.abc import Callable

from crds.resources.amounts import Amounts
from queues.picking.known_entries import Candidate


def enlarge(candidate: Candidate, accepts: Callable[[Amounts], bool]) -> Candidate:
    """Return a job with as many further workers as `accepts` accepts together with its least."""
    waiting = candidate.waiting
    units = largest(waiting.most, waiting.entry.step, lambda units: accepts(waiting.demand_with(units)))
    return Candidate(waiting, waiting.demand_with(units), candidate.position, units) if units else candidate


def largest(most: int, step: int, accepts: Callable[[int], bool]) -> int:
    """Return the largest multiple of `step` up to `most` that `accepts` accepts; 0 if there is none."""
    low, high = 0, most // step
    middle = high
    while low < high:
        if accepts(middle * step):
            low = middle
        else:
            high = middle - 1
        middle = (low + high + 1) // 2
    return low * step
