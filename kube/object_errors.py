"""Objects that a loop has skipped because of an unforeseen error about them.

One rule: an error about one object costs that object its turn and nobody else anything. It is logged when it is met
first, counted each time, and shown until the object could be handled or is gone.
"""

import logging
import threading
from dataclasses import dataclass

from crds import excerpts

REMEMBERED = 1000
"""Objects that are remembered by name. Of more than these, only the number is kept, and no line is logged."""
SHOWN = 3
LONGEST = 200
"""Characters of an error that are shown."""
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Met:
    error: str
    kind: type[BaseException]


class ObjectErrors:
    """What one process has skipped; safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._met: dict[str, _Met] = {}
        self._times = 0

    def met(self, subject: str, error: Exception) -> None:
        """An object was skipped. `subject` names it for people: its kind, namespace and name."""
        text = excerpts.excerpt(f"{type(error).__name__}: {error}", LONGEST)
        with self._lock:
            self._times += 1
            known = self._met.get(subject)
            told = len(self._met) >= REMEMBERED if known is None else known.kind is type(error)
            if known is not None or not told:
                self._met[subject] = _Met(text, type(error))
        if not told:
            logger.error("%s is skipped after an unforeseen error: %s", subject, text, exc_info=error)

    def over(self, subject: str) -> None:
        """The object could be handled, or is gone."""
        if self._met:
            with self._lock:
                self._met.pop(subject, None)

    @property
    def objects(self) -> int:
        """How many objects are skipped now, as far as they are remembered."""
        return len(self._met)

    @property
    def times(self) -> int:
        """How often an object was skipped since the process began."""
        return self._times

    @property
    def shown(self) -> str:
        """The skipped objects in a line for people; empty if there are none."""
        with self._lock:
            known = sorted(self._met.items())
        if not known:
            return ""
        first = "; ".join(f"{subject} ({met.error})" for subject, met in known[:SHOWN])
        more = f"; {len(known) - SHOWN} more" if len(known) > SHOWN else ""
        return f"{first}{more}"
