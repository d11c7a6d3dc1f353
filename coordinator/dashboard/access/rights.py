"""What a visitor of the dashboard may see: what the API server says about the visitor's own token.

One rule: closed by default. What was not asked, or is refused, is not shown. An answer is used for some seconds, and
asked for again as long as the visitor looks.
"""

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from coordinator.access import own_rights
from coordinator.access.own_rights import AccessQuestion
from coordinator.access.readers import EVERYWHERE, Reader
from coordinator.query.bounds import Bounds
from crds.api_resources import TENANT_QUEUES, TORCHJOBS
from kube import errors
from kube.api import Cluster

KEPT_SECONDS = 20.0
"""How long a permission is used. The API server itself takes a token for up to 10 s after the token's end, and what was
taken away is not shown for longer than 35 s."""
REFUSED_SECONDS = 300.0
"""How long a refusal is used. A right that was given shows so much later, or at the next login."""
AWAY_SECONDS = 300.0
"""How long permissions are used while the API server does not answer."""
PAUSE_SECONDS = 5.0
"""How long nothing is asked after the API server did not answer."""
MOST_NEW = 20
"""The most questions of one look beyond those about what the visitor sees already."""
MOST_KEPT = 4096
"""The most answers that are kept for one visitor, and the most names that one look is about."""
NEW_PER_SECOND, NEW_AT_ONCE = 50.0, 200.0
"""How many such questions all visitors together may cause."""
_AWAY = (errors.Unreachable, errors.ServerError, errors.TooManyRequests)


@dataclass(frozen=True, slots=True)
class _Answer:
    allowed: bool
    at: float

    def until(self, refused_seconds: float) -> float:
        """Return when the question has to be asked again; `refused_seconds` is how long a refusal is used."""
        return self.at + (KEPT_SECONDS if self.allowed else refused_seconds)


@dataclass(frozen=True, slots=True)
class _Known:
    """What is told of some namespaces and queues, as long as no question has to be asked for that."""

    of: tuple[Collection[str], Collection[str]]
    bounds: Bounds
    until: float


class ReviewPace:
    """How much all visitors together ask; safe to share between threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._left, self._at = NEW_AT_ONCE, clock()
        self._is_away, self._silent_until = False, 0.0

    def take(self) -> bool:
        """Return whether one more new question may be asked now."""
        with self._lock:
            now = self._clock()
            self._left = min(NEW_AT_ONCE, self._left + (now - self._at) * NEW_PER_SECOND)
            self._at = now
            if self._left < 1:
                return False
            self._left -= 1
            return True

    def may_try(self) -> bool:
        """Return whether something that is known already may be asked again. While the API server does not answer, one
        question of all visitors goes out at a time."""
        with self._lock:
            now = self._clock()
            if not self._is_away:
                return True
            if now < self._silent_until:
                return False
            self._silent_until = now + PAUSE_SECONDS
            return True

    def note(self, *, is_away: bool) -> None:
        """Note whether the API server has answered."""
        with self._lock:
            self._is_away = is_away
            self._silent_until = self._clock() + PAUSE_SECONDS


class Rights:
    """What one visitor may see; safe to share between threads."""

    def __init__(
        self, cluster: Cluster, own: str, pace: ReviewPace, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`own` is the namespace of the visitor's account; empty if it has none."""
        self._cluster, self._own, self._pace, self._clock = cluster, own, pace, clock
        self._lock = threading.Lock()
        self._kept: OrderedDict[AccessQuestion, _Answer] = OrderedDict()
        self._last: Bounds | None = None
        self._known: _Known | None = None
        self._until = math.inf
        """Until when no question has to be asked again of those that the present look asks."""
        self._named: tuple[Reader, frozenset[str] | None] = Reader(), None

    def bounds(self, namespaces: Collection[str], queues: Collection[str], named: Collection[str] = ()) -> Bounds:
        """Return what the visitor may be told of some namespaces and queues. About the `named` namespaces the API
        server is asked at once, about others as the pace allows.

        Raises Unauthorized once the token is not accepted any more, and any ClusterError if nothing is known.
        """
        last = self._last
        # One page of a visitor asks. The others need not wait for the API server, and follow a moment later.
        if not self._lock.acquire(blocking=last is None or bool(named)):
            assert last is not None
            return last
        try:
            left, self._until = [MOST_NEW], math.inf
            reader = self._reader(namespaces, named, left)
            listed = self._listed(queues, left)
            if self._last is None or self._named != (reader, listed):
                # The same bounds are the same object, so that pages need not be made again.
                has = _has_all if listed is None else listed.__contains__
                self._last, self._named = Bounds(reader, has, has), (reader, listed)
            if not named:
                self._known = _Known((namespaces, queues), self._last, self._until)
            return self._last
        finally:
            self._lock.release()

    def known_bounds(self, namespaces: Collection[str], queues: Collection[str]) -> Bounds | None:
        """Return what `bounds` would return now; None if that would ask the API server. Waits for nothing."""
        known = self._known
        if known is None or self._clock() >= known.until or known.of != (namespaces, queues):
            return None
        return known.bounds

    def may(self, question: AccessQuestion) -> bool:
        """Return whether the visitor may do something. Raises ClusterError."""
        with self._lock:
            return self._is_allowed(question)

    def _reader(self, namespaces: Iterable[str], named: Iterable[str], left: list[int]) -> Reader:
        # This question is asked again whatever the answer was: the answer says, too, that the token is good.
        if self._is_allowed(AccessQuestion("list", TORCHJOBS), refused_seconds=KEPT_SECONDS):
            return EVERYWHERE
        asked = {name for name in (self._own, *named) if name}
        found = {name for name in asked if self._is_allowed(AccessQuestion("list", TORCHJOBS, name))}
        for name in sorted(namespaces)[:MOST_KEPT]:
            if name not in asked and self._is_known_allowed(AccessQuestion("list", TORCHJOBS, name), left):
                found.add(name)
        return Reader(namespaces=frozenset(found))

    def _listed(self, queues: Iterable[str], left: list[int]) -> frozenset[str] | None:
        """Return the queues that the visitor may get; None for all."""
        if self._is_allowed(AccessQuestion("get", TENANT_QUEUES)):
            return None
        first = sorted(queues, key=lambda name: (name != self._own, name))[:MOST_KEPT]
        return frozenset(
            name for name in first if self._is_known_allowed(AccessQuestion("get", TENANT_QUEUES, name=name), left)
        )

    def _is_known_allowed(self, question: AccessQuestion, left: list[int]) -> bool:
        """Return whether something is allowed; if that is not known, ask as far as the pace allows."""
        answer = self._kept.get(question)
        if answer is None or (not answer.allowed and self._clock() - answer.at >= REFUSED_SECONDS):
            if left[0] <= 0 or not self._pace.may_try() or not self._pace.take():
                self._until = -math.inf
                return False
            left[0] -= 1
        return self._is_allowed(question)

    def _is_allowed(self, question: AccessQuestion, refused_seconds: float = REFUSED_SECONDS) -> bool:
        answer = self._answer(question, refused_seconds)
        self._until = min(self._until, answer.until(refused_seconds))
        return answer.allowed

    def _answer(self, question: AccessQuestion, refused_seconds: float) -> _Answer:
        answer, now = self._kept.get(question), self._clock()
        if answer is not None and now < answer.until(refused_seconds):
            return answer
        known = answer if answer is not None and now - answer.at < AWAY_SECONDS else None
        if known is not None and not self._pace.may_try():
            return known
        try:
            allowed = own_rights.is_allowed(self._cluster, question)
        except _AWAY:
            self._pace.note(is_away=True)
            if known is not None:
                return known
            raise
        self._pace.note(is_away=False)
        self._kept[question] = found = _Answer(allowed, now)
        self._kept.move_to_end(question)
        while len(self._kept) > 2 * MOST_KEPT:
            self._kept.popitem(last=False)
        return found


def _has_all(_: str) -> bool:
    return True
