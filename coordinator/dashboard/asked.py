"""What a page is made from."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from coordinator.dashboard.readings import Reading
from coordinator.query.bounds import Bounds


@dataclass(frozen=True, slots=True)
class Asked:
    """A request for a page: what was asked for, and what is known."""

    parameters: Mapping[str, str]
    """The parts of the path, and the query of the address."""
    reading: Reading
    """What was read for everybody. A page shows of it what `bounds` tell this visitor."""
    bounds: Bounds
    loaded: Any = None
    """What was read for this page alone."""
    may_act: bool = False
    """Whether the page offers the visitor to change its object."""

    def query(self, *names: str) -> Mapping[str, str]:
        """Return the parts of the query of the address that a page knows."""
        return {name: self.parameters[name] for name in names if name in self.parameters}
