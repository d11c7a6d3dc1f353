"""How far a queue is behind its share.

One rule: in units of cost, whichever picker wrote the accounts.
"""

from queues.credits import credit
from queues.values import Account, Clock
from queues.virtual_time import UNIT


def lag(account: Account, clock: Clock) -> float:
    """How much cost a queue that contends is behind its share (below 0: ahead of it); 0 for one that does not."""
    if not account.weight:
        return 0.0
    if clock.picker == "wf2q":
        return (clock.turns - account.base) * account.weight / UNIT
    return credit(account, clock) / clock.total
