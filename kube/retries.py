"""Decides whether and when a failed request is sent again, and whether a watch that ended counts as a failure.

One rule: pure. A request whose fate is unknown (the connection broke, the server answered 5xx) is sent again only if
a second sending has no further effect. A request that certainly did nothing (not sent, or 429) is always sent
again.
"""

from dataclasses import dataclass

from kube.settings import RetrySettings

TOO_MANY_REQUESTS = 429
FIRST_SERVER_ERROR = 500
NO_ROOM = 507
"""The status of a full disk of the embedded API server: retries last only seconds, and the disk stays full longer."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed attempt: its HTTP status, or status 0 if there was no answer."""

    status: int = 0
    sent: bool = True
    """Whether the server may have seen the request. It has not if there was no connection."""
    retry_after: float | None = None
    """The seconds that the server asks the client to wait."""


def wait(
    settings: RetrySettings,
    failure: Failure,
    *,
    attempt: int,
    repeatable: bool,
    jitter: float,
    elapsed: float = 0.0,
) -> float | None:
    """Return the seconds before the next attempt; None if there should be no further attempt.

    `attempt` counts from 1, `elapsed` is in seconds since the first attempt, and `jitter` is uniform in [0, 1). The
    wait is the server's Retry-After and our own backoff together, so that not all clients of the server come back in
    the same instant.
    """
    if attempt >= settings.attempts or elapsed >= settings.slow_seconds or not _is_worthwhile(failure, repeatable):
        return None
    server_seconds = failure.retry_after or 0.0
    if server_seconds > settings.retry_after_cap_seconds:
        return None
    return server_seconds + backoff(settings.base_seconds, settings.cap_seconds, attempt=attempt, jitter=jitter)


def backoff(base: float, cap: float, *, attempt: int, jitter: float) -> float:
    """Return an exponential backoff with equal jitter: half to all of min(cap, base * 2 ** (attempt - 1)) seconds.

    With base 1 and cap 5, attempts 1, 2, 3, 4, 5 wait at most 1, 2, 4, 5, 5 seconds and at least half of these times.
    """
    longest = min(cap, base * 2.0 ** min(attempt - 1, 63))
    return longest * (1 + jitter) / 2


def retry_after(header: str | None) -> float | None:
    """Return the seconds of a Retry-After header; None without a header, or with a date (no API server sends one)."""
    try:
        seconds = float(header or "")
    except ValueError:
        return None
    return seconds if 0 <= seconds < float("inf") else None


def _is_worthwhile(failure: Failure, repeatable: bool) -> bool:
    if failure.status == TOO_MANY_REQUESTS or not failure.sent:
        return True
    if failure.status == NO_ROOM:
        return False
    if failure.status == 0 or failure.status >= FIRST_SERVER_ERROR:
        return repeatable
    return False


@dataclass(frozen=True, slots=True)
class WatchOutcome:
    """The course of one watch; all fields are 0 if the server never opened it."""

    seconds: float = 0.0
    planned_seconds: float = 0.0
    objects: int = 0
    """Events that carried an object; bookmarks do not count."""
    failed: bool = False


def failures_after(failures: int, outcome: WatchOutcome, healthy_seconds: float) -> int:
    """Return the number of watches in a row that have failed, after one more watch has ended; 0 means that the next
    watch begins at once.

    A watch that the server ends at once without an event is a failure too, or it would be opened thousands of times a
    second. A watch that brought objects begins a new count: on a server that cuts slow readers off, the cache of a busy
    resource then stays close behind. A watch "lasted" if it ended after `healthy_seconds` or after its planned time.

    | lasted | failed | brought objects | before | after |
    |--------|--------|-----------------|--------|-------|
    | yes    | no     | any             | n      | 0     |
    | yes    | yes    | any             | n      | 1     |
    | no     | any    | yes             | n      | 1     |
    | no     | any    | no              | n      | n + 1 |
    """
    lasted = 0 < min(healthy_seconds, outcome.planned_seconds) <= outcome.seconds
    if lasted and not outcome.failed:
        return 0
    return 1 if lasted or outcome.objects else failures + 1
