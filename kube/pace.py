"""How an informer paces itself: when a watch that ended counts as a failure.

One rule: pure.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Round:
    """How one watch went; all zero if it never came to be opened."""

    seconds: float = 0.0
    asked: float = 0.0
    """How long it was to last."""
    changes: int = 0
    """Events that told of an object; bookmarks do not count."""
    failed: bool = False


def failures_after(failures: int, ended: Round, healthy_seconds: float) -> int:
    """How many rounds in a row have failed, once one more has ended; 0 means go on at once.

    A watch that the server ends at once without an event is a failure too, or it would be opened thousands of times a
    second. One that brought changes begins a new count, so that on a server that cuts slow readers the cache of a busy
    resource stays close behind.

    | lived its time | failed | brought changes | before | after |
    |----------------|--------|-----------------|--------|-------|
    | yes            | no     | any             | n      | 0     |
    | yes            | yes    | any             | n      | 1     |
    | no             | any    | yes             | n      | 1     |
    | no             | any    | no              | n      | n + 1 |
    """
    lived = 0 < min(healthy_seconds, ended.asked) <= ended.seconds
    if lived and not ended.failed:
        return 0
    return 1 if lived or ended.changes else failures + 1
