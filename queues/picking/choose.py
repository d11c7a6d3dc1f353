"""Who goes next: the picks that one snapshot allows.

One rule: pure. The same snapshot gives the same picks, whether they are made in one batch or in many.

`queues.picking.picker` says how a pick is made; it also lives on from one batch to the next, which is cheaper than to
begin anew.
"""

from queues.picking.picker import Race
from queues.rules import Rules
from queues.values import Batch, Snapshot


def choose(snapshot: Snapshot, now: float, limit: int, rules: Rules | str) -> Batch:
    """At most `limit` picks, best first; fewer if no more fit, or if a queue's next job is not in the snapshot.

    `rules`, or only what a pick costs; `now` is in seconds since 1970.
    """
    return Race(snapshot, Rules(cost=rules) if isinstance(rules, str) else rules).picks(now, limit)


def blind(snapshot: Snapshot) -> bool:
    """Whether a queue shows only jobs that can never run while others wait behind them: then it takes no part in
    `choose`, though it should."""
    return Race(snapshot, Rules()).blind
