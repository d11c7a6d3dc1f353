"""Objects that a loop has skipped because of an unforeseen error about them.

One rule: an error about one object delays that object and no other object. The first error about an
object is logged, each error is counted, and the latest error is reported until the object could be handled or is
deleted.
"""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from crds import excerpts

REMEMBERED = 1000
"""The most objects that are remembered by name. Further objects are only counted, and not logged."""
SHOWN = 3
LONGEST = 200
"""The most characters of an error in a message."""
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _LastError:
    text: str
    kind: type[BaseException]


class ObjectErrors:
    """The objects that one process has skipped; safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._errors: dict[str, _LastError] = {}
        self._times = 0

    def record(self, subject: str, error: Exception) -> None:
        """Record that an object was skipped. `subject` names it for people: its kind, namespace and name."""
        text = excerpts.excerpt(f"{type(error).__name__}: {error}", LONGEST)
        with self._lock:
            self._times += 1
            previous = self._errors.get(subject)
            is_repeated = previous is not None and previous.kind is type(error)
            is_forgotten = previous is None and len(self._errors) >= REMEMBERED
            if not is_forgotten:
                self._errors[subject] = _LastError(text, type(error))
        if not is_repeated and not is_forgotten:
            logger.error("%s is skipped after an unforeseen error: %s", subject, text, exc_info=error)

    def clear(self, subject: str) -> None:
        """Forget the error of an object that could be handled or is deleted."""
        if self._errors:
            with self._lock:
                self._errors.pop(subject, None)

    @contextmanager
    def skipping(self, subject: str, *, leaving: tuple[type[Exception], ...] = ()) -> Iterator[None]:
        """Record an error that the block raises, so that only this object is skipped; else forget the object's error.

        Errors of the types in `leaving` leave the block: they are about more than this object.
        """
        try:
            yield
        except leaving:
            raise
        except Exception as error:
            self.record(subject, error)
        else:
            self.clear(subject)

    @property
    def objects(self) -> int:
        """The number of objects that are skipped now, as far as they are remembered."""
        return len(self._errors)

    @property
    def times(self) -> int:
        """The number of times that an object was skipped since the process began."""
        return self._times

    @property
    def summary(self) -> str:
        """The skipped objects in a line for people; empty if no objects were skipped."""
        with self._lock:
            entries = sorted(self._errors.items())
        if not entries:
            return ""
        first = "; ".join(f"{subject} ({error.text})" for subject, error in entries[:SHOWN])
        more = f"; {len(entries) - SHOWN} more" if len(entries) > SHOWN else ""
        return f"{first}{more}"
