"""The visitors of a dashboard in the cluster: who has logged in with a token of the API server.

One rule: a token stays in the memory of this process, in the client that uses it. No cookie, page, message or log has
it, and a session is known by a random value of which only a digest is kept.
"""

import hashlib
import logging
import re
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from coordinator.access import own_rights
from coordinator.access.own_rights import AccessQuestion
from coordinator.dashboard.visitors import Visitor
from coordinator.errors import CoordinatorError
from coordinator.runs import submitter
from crds.api_resources import TORCHJOBS
from kube import errors
from kube.client import KubernetesCluster

SESSION_SECONDS = 8 * 3600.0
MOST_SESSIONS = 1000
MOST_OF_ONE_NAME = 20
"""How many browsers one account may have logged in; a further one takes the place of the oldest."""
MOST_WRONG, WRONG_SECONDS = 10, 60.0
"""How many wrong tokens are looked at for one address, in how long a time."""
MOST_ADDRESSES = 10_000
LOGINS_AT_ONCE = 4
"""How many logins ask the API server at the same time."""
COOKIE, SECURE_COOKIE = "torchq-session", "__Host-torchq-session"
"""The cookie without and with TLS in front. A browser takes the second one over TLS only, and from this host only."""
UNKNOWN_NAME = "a token"
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]{1,16384}")
_ANONYMOUS = "system:anonymous"
log = logging.getLogger(__name__)


class NotLoggedIn(CoordinatorError):
    """A login is refused; the message says why."""


class TooManyLogins(NotLoggedIn):
    """A login is refused for now."""


@dataclass(slots=True)
class _Session:
    visitor: Visitor
    until: float


class WrongTokens:
    """The wrong tokens of each address, of the last minute."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._times: OrderedDict[str, list[float]] = OrderedDict()

    def check(self, address: str) -> None:
        """Raise TooManyLogins for an address that has shown too many."""
        with self._lock:
            since = self._clock() - WRONG_SECONDS
            if sum(at > since for at in self._times.get(address, ())) >= MOST_WRONG:
                raise TooManyLogins("too many wrong tokens came from this address: wait a minute")

    def add(self, address: str) -> None:
        """Note a wrong token."""
        with self._lock:
            times = self._times.setdefault(address, [])
            times[:] = [*times, self._clock()][-MOST_WRONG:]
            self._times.move_to_end(address)
            while len(self._times) > MOST_ADDRESSES:
                self._times.popitem(last=False)


class Logins:
    """The browsers that are logged in; safe to share between threads."""

    def __init__(
        self,
        connect_as: Callable[[str], KubernetesCluster],
        make: Callable[[str, KubernetesCluster], Visitor],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`connect_as` returns the API server as the owner of a token sees it; `make` returns a visitor by the name of
        the account and this client."""
        self._connect_as, self._make, self._clock = connect_as, make, clock
        self._lock = threading.Lock()
        self._sessions: OrderedDict[bytes, _Session] = OrderedDict()
        """The sessions by the digest of their cookie, the longest unused first."""
        self._wrong = WrongTokens(clock)
        self._logins = threading.BoundedSemaphore(LOGINS_AT_ONCE)

    def __len__(self) -> int:
        return len(self._sessions)

    def log_in(self, token: str, address: str) -> str:
        """Return the value of the cookie for whoever shows a token. Raises NotLoggedIn, and ClusterError if the API
        server does not answer."""
        self._wrong.check(address)
        token = token.strip()
        if not _TOKEN.fullmatch(token):
            self._wrong.add(address)
            raise NotLoggedIn("this is not a token: torchq dashboard token -n NAMESPACE prints one")
        if not self._logins.acquire(blocking=False):
            raise TooManyLogins("many people log in now: try again")
        try:
            cluster = self._connect_as(token)
            name = self._name(cluster)
        except errors.Unauthorized:
            self._wrong.add(address)
            log.warning("login refused: wrong token from %s", address)
            raise NotLoggedIn(
                "the API server does not accept this token: it may be wrong, at its end, or made for another server"
            ) from None
        finally:
            self._logins.release()
        value = secrets.token_urlsafe(32)
        self._keep(value, _Session(self._make(name, cluster), self._clock() + SESSION_SECONDS))
        log.info("login of %s from %s", name, address)
        return value

    def find(self, cookies: Mapping[str, str], *, is_secure: bool) -> Visitor | None:
        """See `Visitors`."""
        key = _digest(cookies.get(SECURE_COOKIE if is_secure else COOKIE, ""))
        with self._lock:
            session = self._sessions.get(key)
            if session is None:
                return None
            if self._clock() >= session.until:
                del self._sessions[key]
                return None
            self._sessions.move_to_end(key)
            return session.visitor

    def end(self, visitor: Visitor) -> None:
        """End the session of a visitor."""
        with self._lock:
            ended = [key for key, session in self._sessions.items() if session.visitor is visitor]
            for key in ended:
                del self._sessions[key]
        if ended:
            log.info("end of the session of %s", visitor.name)

    def _name(self, cluster: KubernetesCluster) -> str:
        """Return the name of the account. Raises Unauthorized for a token that the API server does not accept."""
        # An API server that tells nobody's name accepts any token for this question only if the token is good.
        own_rights.is_allowed(cluster, AccessQuestion("list", TORCHJOBS))
        name = submitter.find(cluster)
        if name == _ANONYMOUS:
            raise errors.Unauthorized(name)
        return name or UNKNOWN_NAME

    def _keep(self, value: str, made: _Session) -> None:
        with self._lock:
            now = self._clock()
            old = [key for key, session in self._sessions.items() if now >= session.until]
            same = [key for key, session in self._sessions.items() if session.visitor.name == made.visitor.name]
            if made.visitor.name != UNKNOWN_NAME:
                old += same[: max(0, len(same) - MOST_OF_ONE_NAME + 1)]
            for key in old:
                self._sessions.pop(key, None)
            while len(self._sessions) >= MOST_SESSIONS:
                self._sessions.popitem(last=False)
            self._sessions[_digest(value)] = made


def _digest(value: str) -> bytes:
    return hashlib.sha256(value.encode(errors="replace")).digest()
