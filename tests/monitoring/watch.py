"""Makes causes, waits until their alerts fire, ends the causes, and waits until the alerts have resolved.

One rule: only the answers of Prometheus count, and each wait has a deadline.
"""

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.monitoring.causes import Cause, expected_labels
from tests.monitoring.installation import Installation
from tests.monitoring.load import Load
from tests.monitoring.prometheus import Prometheus

FIRE_SECONDS = RESOLVE_SECONDS = 150.0
LOOK_SECONDS = 0.2


@dataclass
class Row:
    """The result of one cause. Times are seconds of the run; None means that the event did not happen."""

    cause: Cause
    began: float
    end_cause: Callable[[], None]
    is_early: bool = False
    """Whether the alert fired before its cause was made."""
    fired: float | None = None
    ended: float | None = None
    resolved: float | None = None

    @property
    def is_over(self) -> bool:
        """Whether the alert has resolved, or has never fired."""
        return self.fired is None or self.resolved is not None

    @property
    def fired_after(self) -> float | None:
        """How long after its cause the alert fired."""
        return None if self.fired is None else self.fired - self.began

    @property
    def resolved_after(self) -> float | None:
        """How long after the end of its cause the alert had resolved."""
        return None if self.resolved is None or self.ended is None else self.resolved - self.ended


@dataclass
class Watch:
    """The causes that were made until now."""

    site: Installation
    prometheus: Prometheus
    load: Load
    say: Callable[[str], None]
    rows: list[Row] = field(default_factory=list)

    def play(self, causes: Sequence[Cause]) -> None:
        """Make some causes at the same time, and wait until their alerts have fired and resolved."""
        self._wait(lambda: not any(map(self._fires, causes)), RESOLVE_SECONDS, [])
        with contextlib.ExitStack() as made:
            rows = [self._begin(cause, made) for cause in causes]
            self._wait(lambda: all(row.ended for row in rows), FIRE_SECONDS, rows)
        for row in rows:
            row.ended = row.ended or time.monotonic()
        self._wait(lambda: all(row.is_over or row.cause.lingers for row in rows), RESOLVE_SECONDS, rows)
        self._wait(lambda: not self.prometheus.targets_down() and self.site.leader(), RESOLVE_SECONDS, [])

    def settle(self) -> list[str]:
        """Wait until the alerts with a long range and the alerts of side effects resolve. Return the alerts that still
        fire.
        """
        self.load.is_quiet = True
        self._wait(lambda: all(row.is_over for row in self.rows), RESOLVE_SECONDS, [])
        self._wait(lambda: not self.prometheus.firing(), RESOLVE_SECONDS, [])
        return sorted(self.prometheus.firing())

    def wait(self, condition: Callable[[], object], seconds: float) -> bool:
        """Let the run continue until the condition holds. Return whether the condition held in time."""
        return self._wait(condition, seconds, [])

    def _begin(self, cause: Cause, made: contextlib.ExitStack) -> Row:
        self.say(f"cause of {cause.alert}: {cause.text}")
        block = made.enter_context(contextlib.ExitStack())
        row = Row(cause, time.monotonic(), block.close, is_early=self._fires(cause))
        block.enter_context(cause.make(self.site, self.load))
        self.rows.append(row)
        return row

    def _wait(self, condition: Callable[[], object], seconds: float, rows: Sequence[Row]) -> bool:
        deadline = time.monotonic() + seconds
        while True:
            self.site.parts.tick()
            self.load.tick()
            self._look()
            for row in rows:
                self._step(row)
            if condition():
                return True
            if time.monotonic() > deadline:
                return False
            time.sleep(LOOK_SECONDS)

    def _look(self) -> None:
        now = time.monotonic()
        for row in self.rows:
            fires = self._fires(row.cause)
            if fires and row.fired is None and row.ended is None:
                row.fired = now
                self.say(f"  {row.cause.alert} fires after {now - row.began:.1f} s")
            elif not fires and row.fired is not None and row.ended is not None and row.resolved is None:
                row.resolved = now
                self.say(f"  {row.cause.alert} has resolved {now - row.ended:.1f} s after the end of its cause")

    def _step(self, row: Row) -> None:
        """End a cause whose alert has fired. Otherwise make the cause again if its effect does not last."""
        if row.ended is not None:
            return
        if row.fired is not None:
            row.ended = time.monotonic()
            row.end_cause()
        elif row.cause.again is not None:
            with contextlib.suppress(OSError):
                row.cause.again(self.site)

    def _fires(self, cause: Cause) -> bool:
        wanted = expected_labels(cause).items()
        return any(wanted <= labels.items() for labels in self.prometheus.firing().get(cause.alert, ()))
