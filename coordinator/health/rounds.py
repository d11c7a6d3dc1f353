"""The rounds of a writer that looks at all jobs again and again while this process leads.

One rule: an error costs one round. What a writer remembers is void after it, and when another process may lead.
"""

from collections.abc import Callable, Iterable
from typing import Protocol

from coordinator.cache.watches import Watches


class RoundWriter(Protocol):
    """What looks at jobs, and writes what it finds into their statuses."""

    watches: Watches

    def look(self) -> int:
        """Look at all jobs once; return how many statuses were written."""

    def forget(self) -> None:
        """Forget everything that was seen."""


def run(writer: RoundWriter, rounds: Iterable[None], leading: Callable[[], bool], subject: str) -> None:
    """Let a writer look in each round while this process leads; `subject` is what an error is about, in words."""
    for _ in rounds:
        if not (leading() and writer.watches.synced):
            writer.forget()
            continue
        try:
            writer.look()
        except Exception as error:
            writer.forget()
            writer.watches.errors.record(subject, error)
        else:
            writer.watches.errors.clear(subject)
