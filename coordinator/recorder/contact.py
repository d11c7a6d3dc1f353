"""Whether a watch shows what happens now, or catches up with what has happened while it was cut off.

One rule: events after a break are in order and complete, but nobody knows when the objects were deleted.
"""

from collections.abc import Callable
from typing import Any

from kube.informer import Informer

CATCH_UP_SECONDS = 10.0
"""How long a watch that goes on after a break may take until it has told everything of the break."""


class Contact:
    """The contact of one informer with the API server. One thread calls `look`; any thread may read."""

    def __init__(self, informer: Informer[Any], now: Callable[[], float]) -> None:
        self._informer = informer
        self._now = now
        self._seen = (0, 0)
        """The lists and breaks that `look` has seen."""
        self._resumed_at = 0.0
        self._current_at = 0.0
        """When the informer was known to have told everything."""

    def look(self) -> None:
        """Note whether the watch goes on."""
        informer, now = self._informer, self._now()
        if informer.failing:
            return
        if (seen := (informer.lists, informer.breaks)) != self._seen:
            self._seen, self._resumed_at = seen, now if informer.breaks else 0.0
        if now - self._resumed_at >= CATCH_UP_SECONDS:
            self._current_at = now

    @property
    def lost_at(self) -> int | None:
        """The time since which events may be late; None if they come as they happen."""
        informer = self._informer
        is_news = informer.breaks > 0 and (informer.lists, informer.breaks) != self._seen
        is_late = informer.failing or is_news or self._now() - self._resumed_at < CATCH_UP_SECONDS
        return int(self._current_at) if is_late else None
