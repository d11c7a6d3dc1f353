"""Which child processes have hung for so long that their supervisor kills them and starts them again.

One rule: only time counts in which the supervisor itself ran. After a stop of both, the child has its time again.
"""

from collections.abc import Mapping

PATIENCE_SECONDS = 30.0
"""How long a child may hang, from the moment at which its probe fails, before it is killed. A kubelet that waits longer
restarts no healthy process along with it."""
_LONGEST_LOOK = 3.0
"""The most seconds that count from one look to the next."""


class HungChildren:
    """The children that hang now, and for how long they have been seen to."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._looked_at = 0.0

    def look(self, hanging: Mapping[str, str], now: float) -> dict[str, str]:
        """Return those of the hanging children, with their problems, that have hung for too long."""
        passed, self._looked_at = min(_LONGEST_LOOK, now - self._looked_at), now
        self._seconds = {name: self._seconds.get(name, -passed) + passed for name in hanging}
        over = {name: hanging[name] for name, seconds in self._seconds.items() if seconds > PATIENCE_SECONDS}
        for name in over:
            del self._seconds[name]
        return over
