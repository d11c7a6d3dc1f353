"""Whether a run is right so far, and whether it may end as it stands.

One rule: what is wrong is broken at once, unless somebody slept beyond its leases: then it has the time to be healed.
"""

from collections.abc import Sequence

from tests.faults.observer import Observer
from tests.faults.scenarios.scenario import Scenario
from tests.faults.schedules import ZOMBIES, Kind, Schedule

START = 1_700_000_000.0
RESYNC_SECONDS = 30.0
HEAL_SECONDS = 2 * RESYNC_SECONDS
"""What a zombie may have done is undone within one resync; the leader that finds it may have to take over first."""
REVOKE_SECONDS = 5.0
"""An admission that is written too late is taken back within this, as long as somebody leads."""
PROMPT_SECONDS = 5.0
"""What all of a scenario's work takes at most, when nothing goes wrong."""
YIELD_SECONDS = 15.0
"""What a call that waits while others take a few steps may take longer."""
LIMIT_SECONDS = 400.0
UNFENCED = ("api.create", "api.delete")


class Broken(AssertionError):
    """What must hold did not."""


class Verdict:
    """What is thought of one run."""

    def __init__(
        self, observer: Observer, scenario: Scenario, schedule: Schedule, expected: list[str] | None, stuck: float
    ) -> None:
        """`expected` is what the undisturbed run leaves in the cluster, None while that is being found out; `stuck`
        for how many seconds its pods do not start."""
        self._observer, self._scenario, self._schedule, self._expected = observer, scenario, schedule, expected
        self._patience = stuck + scenario.patience + YIELD_SECONDS * len(schedule.faults)
        self._wrong: dict[str, float] = {}
        """Since when."""
        self._judged: object = None
        self._excused = False
        """Whether somebody fell asleep with the fence behind it: what it writes then has to be undone."""
        self._late = False
        """Whether somebody fell asleep before writing a status: an admission may have to be taken back."""
        self.broken: Broken | None = None

    def disturbed(self, kind: Kind, label: str) -> None:
        """A fault is put into this call."""
        self._excused |= kind in ZOMBIES and label in UNFENCED
        self._late |= kind in ZOMBIES and label == "api.patch"

    def look(self, now: float, state: tuple[object, ...]) -> str:
        """Look, if anything has changed; what has just turned out to be broken, if anything."""
        mark = (*state, self._wrong and now)
        if mark == self._judged:
            return ""
        self._judged = mark
        found = self._observer.problems(zombies=self._excused)
        self._wrong = {each: self._wrong.get(each, now) for each in found}
        patience = HEAL_SECONDS if self._excused else REVOKE_SECONDS if self._late else 0.0
        late = [problem for problem, since in self._wrong.items() if now - since >= patience]
        if not late or self.broken is not None:
            return ""
        self.broken = Broken(late[0])
        return late[0]

    def unforeseen(self, name: str, error: Exception) -> None:
        """A process met an error that is nobody's fault but its own."""
        self.broken = self.broken or Broken(f"{name}: {type(error).__name__}: {error}")
        self.broken.__cause__ = error

    def may_end(self, now: float, under_way: Sequence[str], *, waits: bool) -> bool:
        """Whether all is over and as it should be; `waits`: the owner has not taken all steps. Broken if it will not
        come to that."""
        found = [*under_way, *self._wrong, *self._observer.remains()]
        left = self._observer.left()
        if not found and self._expected is not None and not self._as_expected(left, self._expected):
            found = [f"left in the cluster: {left}, should be: {self._expected}"]
        if found and now - START > LIMIT_SECONDS:
            raise Broken("not as it should be in the end: " + "; ".join(found))
        if not found and not waits and self._is_slow(now):
            raise Broken(f"takes {now - START:.0f} s, though nothing goes wrong")
        return not found and not waits

    def _is_slow(self, now: float) -> bool:
        """Whether something was found by looking again after a while, that somebody should have been told of."""
        harmless = all(fault.kind == "yield" for fault in self._schedule.faults)
        return harmless and not self._schedule.seed and now - START > PROMPT_SECONDS + self._patience

    def _as_expected(self, left: list[str], expected: list[str]) -> bool:
        loose = self._scenario.loose or self._excused
        if loose:  # a service costs nothing, and goes with its job
            left = [each for each in left if not each.startswith("service")]
        return left == expected or (loose and set(left) <= set(expected))
