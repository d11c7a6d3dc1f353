"""The checks of the loops of this process.

One rule: a loop that waits for Redis or the API server passes. A restart would not help.
"""

from coordinator.life.checks import Check
from kube.process.turns import LATE_SECONDS, Turns


def loop_checks(turns: Turns) -> list[Check]:
    """Return a check of each loop."""
    return [_check(turn.name, turn.age) for turn in turns.loops]


def _check(name: str, age: float) -> Check:
    return Check(name, f"it has not turned for {age:.0f} s" if age > LATE_SECONDS else "")
