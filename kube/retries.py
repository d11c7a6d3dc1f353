"""Whether a failed request is sent again, and when.

One rule: pure. A request whose fate is unknown (the connection broke, the server answered 5xx) is sent again only if
sending it twice does what sending it once does; a request that certainly did nothing (not sent, or 429) always may.
"""

from dataclasses import dataclass

from kube.settings import RetrySettings

TOO_MANY_REQUESTS = 429
FIRST_SERVER_ERROR = 500
NO_ROOM = 507
"""The embedded API server's disk is full: nobody makes room in the seconds that retries take."""


@dataclass(frozen=True, slots=True)
class Failure:
    """How one attempt failed: with an HTTP status, or (status 0) without an answer."""

    status: int = 0
    sent: bool = True
    """False if the server cannot have seen the request, since there was no connection."""
    retry_after: float | None = None
    """Seconds the server asked us to wait."""


def wait(settings: RetrySettings, failure: Failure, *, attempt: int, repeatable: bool, jitter: float) -> float | None:
    """Seconds before the next attempt, or None if there should be none.

    `attempt` counts from 1; `jitter` is uniform in [0, 1). A server's Retry-After is honoured in full, and our own
    backoff is added to it so that its clients do not all come back in the same instant.
    """
    if attempt >= settings.attempts or not _worthwhile(failure, repeatable):
        return None
    asked = failure.retry_after or 0.0
    if asked > settings.retry_after_cap_seconds:
        return None
    return asked + backoff(settings.base_seconds, settings.cap_seconds, attempt=attempt, jitter=jitter)


def backoff(base: float, cap: float, *, attempt: int, jitter: float) -> float:
    """Exponential backoff with equal jitter: between half and all of min(cap, base * 2 ** (attempt - 1)) seconds.

    With base 1 and cap 5, attempts 1, 2, 3, 4, 5 wait at most 1, 2, 4, 5, 5 seconds and at least half of that.
    """
    longest = min(cap, base * 2.0 ** min(attempt - 1, 63))
    return longest * (1 + jitter) / 2


def retry_after(header: str | None) -> float | None:
    """The seconds a Retry-After header asks for; None without one. A date (no API server sends one) counts as none."""
    try:
        seconds = float(header or "")
    except ValueError:
        return None
    return seconds if 0 <= seconds < float("inf") else None


def _worthwhile(failure: Failure, repeatable: bool) -> bool:
    if failure.status == TOO_MANY_REQUESTS or not failure.sent:
        return True
    if failure.status == NO_ROOM:
        return False
    if failure.status == 0 or failure.status >= FIRST_SERVER_ERROR:
        return repeatable
    return False
