"""The checks of a dashboard in the cluster. A server that is away fails no check: a restart would not help."""

from collections.abc import Sequence
from dataclasses import dataclass

from coordinator.dashboard.readings import Readings
from coordinator.life.health_checks import Check
from coordinator.life.process_checks import loop_checks
from kube.process.turns import Turns


@dataclass(slots=True)
class DashboardLife:
    """The checks of one dashboard."""

    turns: Turns
    readings: Readings
    is_open: bool = False
    """Whether pages are answered."""

    def healthz(self) -> Sequence[Check]:
        """Return a check of the event loop."""
        return loop_checks(self.turns)

    def readyz(self) -> Sequence[Check]:
        """Return whether pages are answered, and what they lack."""
        problems = self.readings.present.problems
        pages = Check("pages", "" if self.is_open else "not answered yet")
        return [pages, Check("cluster", note="; ".join(f"{part}: {text}" for part, text in problems.items()))]
