"""The verdict on a run: whether it is correct so far, and whether it may end now.

One rule: a violation fails the run at once, except after a process slept beyond its leases: then the processes have
time to repair the damage.
"""

from collections.abc import Sequence

from tests.faults.observer import Observer
from tests.faults.scenarios.scenario import Scenario
from tests.faults.schedules import ZOMBIES, Kind, Schedule

START = 1_700_000_000.0
RESYNC_SECONDS = 30.0
HEAL_SECONDS = 2 * RESYNC_SECONDS
"""The time to undo the writes of a zombie: one resync, and the time of a leader change before it."""
REVOKE_SECONDS = 5.0
"""The time in which a leader withdraws an admission that was written too late."""
PROMPT_SECONDS = 5.0
"""The longest duration of a scenario without faults and without deliberate waiting."""
YIELD_SECONDS = 15.0
"""The additional time of a call that waits for other processes."""
LIMIT_SECONDS = 400.0
LATER_LOOK = "kept in the store: work"
"""The entry that is left of a finished job until its worker has checked whether its deleted pods are gone in time."""
CALM: frozenset[Kind] = frozenset({"again", "yield", "flush", "lag", "user"})
"""Faults after which no count is missing."""
UNFENCED = ("api.create", "api.delete")


class Broken(AssertionError):
    """An invariant does not hold."""


class Verdict:
    """The verdict on one run."""

    def __init__(
        self, observer: Observer, scenario: Scenario, schedule: Schedule, expected: list[str] | None, stuck: float
    ) -> None:
        """Start without violations.

        `expected` is what the run without faults leaves in the cluster, and None in the run without faults. `stuck` is
        the number of seconds for which pods do not start.
        """
        self._observer, self._scenario, self._schedule, self._expected = observer, scenario, schedule, expected
        self._patience = stuck + scenario.patience + YIELD_SECONDS * len(schedule.faults)
        self._wrong: dict[str, float] = {}
        """The time since which each violation lasts."""
        self._judged: object = None
        self._excused = False
        """Whether a process fell asleep after it had passed its fence: its writes have to be undone."""
        self._late = False
        """Whether a process fell asleep before it wrote a status: an admission may have to be withdrawn."""
        self._rests_since: float | None = None
        """The time since which nothing is left except a later look at a job."""
        self.broken: Broken | None = None

    def disturbed(self, kind: Kind, label: str) -> None:
        """Record that a fault hits this call."""
        self._excused |= kind in ZOMBIES and label in UNFENCED
        self._late |= kind in ZOMBIES and label == "api.patch"

    def look(self, now: float, state: tuple[object, ...]) -> str:
        """Check the invariants if anything has changed, and return a new failure, or the empty string."""
        mark = (*state, self._wrong and now)
        if mark == self._judged:
            return ""
        self._judged = mark
        found = self._observer.problems(now, zombies=self._excused)
        self._wrong = {each: self._wrong.get(each, now) for each in found}
        patience = HEAL_SECONDS if self._excused else REVOKE_SECONDS if self._late else 0.0
        late = [problem for problem, since in self._wrong.items() if now - since >= patience]
        if not late or self.broken is not None:
            return ""
        self.broken = Broken(late[0])
        return late[0]

    def violated(self, what: str) -> None:
        """Fail the run for a call that did something forbidden."""
        self.broken = self.broken or Broken(what)

    def unforeseen(self, name: str, error: Exception) -> None:
        """Fail the run for an error of a process that no fault explains."""
        self.broken = self.broken or Broken(f"{name}: {type(error).__name__}: {error}")
        self.broken.__cause__ = error

    def may_end(self, now: float, under_way: Sequence[str], *, waits: bool) -> bool:
        """Return whether the run has reached its expected end. `waits` says whether the owner has steps left.

        Raises Broken if the run takes too long.
        """
        found = [*under_way, *self._wrong, *self._observer.remains()]
        left = self._observer.left()
        if not found and self._expected is not None and not self._as_expected(left, self._expected):
            found = [f"left in the cluster: {left}, should be: {self._expected}"]
        if self._is_calm():
            found += self._observer.uncounted()
        rests = all(each in under_way or each.startswith(LATER_LOOK) for each in found)
        self._rests_since = (now if self._rests_since is None else self._rests_since) if rests else None
        if found and now - START > LIMIT_SECONDS:
            raise Broken("not as it should be in the end: " + "; ".join(found))
        if not found and not waits and self._is_slow(self._rests_since or now):
            raise Broken(f"takes {now - START:.0f} s, though nothing goes wrong")
        return not found and not waits

    @property
    def rests(self) -> bool:
        """Whether nothing is left to do except a later look at a job."""
        return self._rests_since is not None

    def _is_slow(self, now: float) -> bool:
        """Return whether a run without faults took so long that only a resync noticed a missed event."""
        harmless = all(fault.kind == "yield" for fault in self._schedule.faults)
        return harmless and not self._schedule.seed and now - START > PROMPT_SECONDS + self._patience

    def _is_calm(self) -> bool:
        """Return whether every process lives and gets every answer, so that the process counts everything that it
        does.
        """
        return not self._schedule.seed and all(fault.kind in CALM for fault in self._schedule.faults)

    def _as_expected(self, left: list[str], expected: list[str]) -> bool:
        loose = self._scenario.loose or self._excused
        if loose:  # a service uses no room, and is deleted with its job
            left = [each for each in left if not each.startswith("service")]
        return left == expected or (loose and set(left) <= set(expected))
