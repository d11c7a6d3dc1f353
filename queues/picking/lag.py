"""How far a queue is behind its share.

One rule: in units of cost.
"""

from queues.picking.fair_share import UNIT
from queues.values import Account, Clock


def lag(account: Account, clock: Clock) -> float:
    """How much cost a queue is behind its share (below 0: ahead of it); 0 for one that does not count."""
    if not account.weight:
        return 0.0
    return (account.weight * clock.served - account.base * clock.weights) / (clock.weights * UNIT)
