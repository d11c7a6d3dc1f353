"""Who looks at the dashboard: one visitor for each browser that is logged in.

One rule: everything that a visitor reads or changes is asked with the visitor's own rights.
"""

import hmac
import secrets
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from coordinator.access.own_rights import AccessQuestion
from coordinator.query.bounds import Bounds
from coordinator.query.questions import Queries
from coordinator.query.remote_queries import History
from kube.client import KubernetesCluster


@dataclass(frozen=True, slots=True, eq=False)
class Visitor:
    """A browser that is logged in."""

    name: str
    """The account as which the visitor acts, for people."""
    cluster: KubernetesCluster
    """The API server, asked with the visitor's own rights."""
    queries: Callable[[], Queries]
    """A function that returns access to a coordinator for questions about single jobs."""
    history: Callable[[], History]
    """A function that returns access to the history. Raises CoordinatorError where none is kept."""
    bounds: Callable[[Collection[str]], Bounds]
    """A function that returns what of the answers for everybody this visitor is told, also of the namespaces that are
    given. Raises ClusterError."""
    may_act: bool
    """Whether pages show what changes jobs and queues."""
    may: Callable[[AccessQuestion], bool]
    """A function that returns whether the visitor may do something. Raises ClusterError."""
    known_bounds: Callable[[], Bounds | None] = lambda: None
    """A function that returns what `bounds` would return now for no namespaces; None if it would ask the API server."""
    namespace: str = ""
    """The only namespace whose jobs were read for this visitor; empty: those of all namespaces were."""
    is_embedded: bool = False
    """Whether the cluster is a local one."""
    secret: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)
    """What a request that changes something has to show, beside the cookie."""

    def is_secret(self, shown: str) -> bool:
        """Return whether a request shows the secret."""
        return hmac.compare_digest(self.secret.encode(), shown.encode(errors="replace"))


Lookers = Visitor | Bounds
"""Who sees the same page: a visitor, or all visitors who are told the same."""


class Visitors(Protocol):
    """Who may look, by what their browsers send."""

    def find(self, cookies: Mapping[str, str], *, is_secure: bool) -> Visitor | None:
        """Return the visitor whose cookie a browser sent, over TLS or not; None if there is none, or no longer."""

    def end(self, visitor: Visitor) -> None:
        """Forget a visitor whom the API server does not know any more."""


class OneVisitor:
    """The visitor of a dashboard that a user runs: whoever opens the printed address first."""

    def __init__(self, visitor: Visitor) -> None:
        self._visitor = visitor
        self._code: str | None = secrets.token_urlsafe(24)
        self._value = secrets.token_urlsafe(32)
        self._lock = threading.Lock()
        # All ports of a machine share cookies, so another dashboard must not replace this one's.
        self.cookie = f"torchq-{secrets.token_hex(6)}"

    @property
    def code(self) -> str:
        """The code that opens the dashboard once; empty after that."""
        return self._code or ""

    def open(self, code: str) -> str | None:
        """Return the value of the cookie for the code; None for a wrong code, and for the right one the second time."""
        with self._lock:
            if self._code is None or not hmac.compare_digest(self._code.encode(), code.encode(errors="replace")):
                return None
            self._code = None
            return self._value

    def end(self, visitor: Visitor) -> None:
        """Keep the visitor: who renews the credentials of the kubeconfig sees the pages again."""

    def find(self, cookies: Mapping[str, str], *, is_secure: bool) -> Visitor | None:  # noqa: ARG002
        """See `Visitors`."""
        value = cookies.get(self.cookie, "")
        return self._visitor if hmac.compare_digest(self._value.encode(), value.encode(errors="replace")) else None
