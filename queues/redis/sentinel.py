"""Which server is the master, by the word of the sentinels.

One rule: all clients of a process agree on one master. All clients of a location share one Master, and no client stays
on a server that the Master has left.
"""

import contextlib
import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence

from queues.errors import BadAddress, StoreUnreachable
from queues.redis import sentinel_url
from queues.redis import url as redis_url
from queues.redis.log_throttle import OutageLog
from queues.redis.sentinel_url import Sentinels

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""How old an opinion is when a command begins a look beside itself."""
BLIND_SECONDS = 2.0
"""How old an opinion may be at most: a command with an older one waits for a look. So a process that is silent for long
does not go on with a server that others left meanwhile."""
SILENT_SECONDS = 5.0
"""How long a sentinel that did not answer is not asked again if the others suffice."""

_NEVER = -math.inf, ""

Address = tuple[str, int]
Ask = Callable[[str, str], Address | None]
"""Asks the sentinel at a plain URL for the master of a name; None: it knows no such name. Raises SentinelSilent."""


class SentinelSilent(Exception):
    """A sentinel does not answer, or refuses to."""


class Unlocated(Exception):
    """Nobody can say where the master is."""


def elect(votes: Sequence[Address | None], last: Address | None) -> Address | None:
    """Return the address of most of the sentinels that know the name, else the last address; None if there is
    neither."""
    known = Counter(vote for vote in votes if vote is not None)
    for address, count in known.most_common(1):
        if 2 * count > known.total():
            return address
    return last


def start_thread(look: Callable[[], None]) -> None:
    """Run a look beside the caller, which a silent sentinel would stop for a second."""
    threading.Thread(target=look, name="redis-master", daemon=True).start()


class Master:
    """The server that all clients of one location use. Many threads may use the object."""

    def __init__(
        self,
        read_url: Callable[[], str],
        clock: Callable[[], float] = time.monotonic,
        beside: Callable[[Callable[[], None]], None] = start_thread,
    ) -> None:
        """`read_url` returns the URL of the location; `beside` runs a function without a wait for its end."""
        self._read_url, self._clock, self._beside = read_url, clock, beside
        self._lock = threading.Lock()
        self._looked_at = self._moved_at = -math.inf
        self._place = ""
        self._last: tuple[str, Address] | None = None
        """The name of the master and its address."""
        self._silent: dict[str, tuple[float, str]] = {}
        """Sentinel -> when and why it did not answer."""
        self._outage = OutageLog(log, clock)

    def locate(self, ask: Ask) -> str:
        """Return the plain URL for a new connection, by a look that began after this call. Raises Unlocated."""
        called_at = self._clock()
        with self._lock:
            return self._look(ask, since=called_at)

    def has_left(self, place: str, ask: Ask) -> bool:
        """Return whether clients should use another server than the server at a place (`queues.redis.url.address`)."""
        age = self._clock() - self._looked_at
        if age >= BLIND_SECONDS:
            with contextlib.suppress(Unlocated):  # the last opinion stays
                self.locate(ask)
        elif age >= LOOK_SECONDS and self._lock.acquire(blocking=False):
            try:
                self._beside(lambda: self._look_again(ask))
            except RuntimeError:  # no thread can be started
                self._look_again(ask)
        return self._place not in ("", place)

    @property
    def seconds_since_move(self) -> float:
        """The time since the server was last replaced; infinite if the server never was."""
        return self._clock() - self._moved_at

    @property
    def address(self) -> str:
        """The address of the master that was found last; empty if none was, or without sentinels."""
        return f"{self._last[1][0]}:{self._last[1][1]}" if self._last else ""

    def _look_again(self, ask: Ask) -> None:
        """Look, and release the lock that `has_left` has taken."""
        try:
            with contextlib.suppress(Unlocated):  # the next new connection reports it
                self._look(ask, since=math.inf)
        finally:
            self._lock.release()

    def _look(self, ask: Ask, since: float) -> str:
        """Read the URL, and ask the sentinels unless they were asked after a moment. Needs the lock."""
        try:
            url = self._read_url()
        except BadAddress as error:
            raise Unlocated(str(error)) from None
        sentinels = sentinel_url.parse(url)
        began, is_old = self._clock(), self._looked_at < since or not self._place
        if sentinels is not None:
            name, last = sentinels.name, self._last[1] if self._last and self._last[0] == sentinels.name else None
            self._last = (name, self._elected(sentinels, ask, last) if is_old or last is None else last)
            url = sentinels.server(*self._last[1])
        place = redis_url.address(url)
        if self._place not in ("", place):
            self._moved_at = self._clock()
        self._looked_at, self._place = began, place
        return url

    def _elected(self, sentinels: Sentinels, ask: Ask, last: Address | None) -> Address:
        votes, reasons = self._votes(sentinels, ask, last)
        found = elect(votes, last)
        if found is None:
            raise Unlocated(_problem(sentinels.name, votes, reasons))
        if any(vote is not None for vote in votes):
            self._outage.report_recovery()
        else:
            stays = f"the server at {found[0]}:{found[1]} stays in use"
            problem = _problem(sentinels.name, votes, reasons)
            self._outage.report_failure(StoreUnreachable(f"{sentinels.shown}: {problem}; {stays}"))
        return found

    def _votes(
        self, sentinels: Sentinels, ask: Ask, last: Address | None
    ) -> tuple[list[Address | None], dict[str, str]]:
        """Return the answers of the sentinels, and the reasons of the sentinels without an answer. A majority of all is
        enough.
        """
        votes: list[Address | None] = []
        reasons: dict[str, str] = {}
        for host in sorted(sentinels.hosts, key=lambda host: self._silent.get(host, _NEVER)[0]):
            if any(vote and 2 * count > len(sentinels.hosts) for vote, count in Counter(votes).items()):
                break
            silent_at, reason = self._silent.get(host, _NEVER)
            # A look asks only one of the silent sentinels again, and so lasts one timeout at most.
            if reason and (votes or last) and (reasons or self._clock() - silent_at < SILENT_SECONDS):
                reasons[host] = reason
                continue
            try:
                votes.append(ask(sentinels.sentinel(host), sentinels.name))
                self._silent.pop(host, None)
            except SentinelSilent as error:
                reasons[host] = str(error)
                self._silent[host] = self._clock(), reasons[host]
        return votes, reasons


def _problem(name: str, votes: Sequence[Address | None], reasons: dict[str, str]) -> str:
    """Return why the sentinels have named no master."""
    known = sorted({f"{vote[0]}:{vote[1]}" for vote in votes if vote is not None})
    if known:
        return f"the sentinels disagree which server is the master {name!r}: {', '.join(known)}"
    if votes:
        return f"the sentinels know no master with the name {name!r}: check the name in the Redis URL"
    return "no sentinel answers: " + "; ".join(f"{host}: {reason}" for host, reason in sorted(reasons.items()))
