"""The token that a command shows to coordinators, so that their answers name the jobs that its user may read.

One rule: a token is asked for at the first question about a namespace, and once per command. A command whose account
gets none says what is missing, and goes on: answers then name no job.
"""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from coordinator.access.readers import ACCOUNT, AUDIENCE, HEADER, READER_ACCOUNT, TOKEN_SECONDS
from kube import errors
from kube.client import KubernetesCluster

RENEWED_SECONDS = TOKEN_SECONDS - 60
"""The age at which a command that lasts asks for a new token."""
GRANTS = {ACCOUNT: "torchq rbac --tenant {namespace}", READER_ACCOUNT: "torchq rbac reader"}
"""The command that prints the account."""


@dataclass(frozen=True, slots=True)
class _Shown:
    """The header for a namespace, and until when it is used."""

    headers: Mapping[str, str]
    until: float


class ShownTokens:
    """The tokens of one command, one for each namespace that it asks about."""

    def __init__(
        self,
        cluster: KubernetesCluster,
        namespace: str,
        *,
        everywhere: bool = False,
        say: Callable[[str], object] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`namespace` is the one of questions that name none. With `everywhere`, the account for all namespaces is
        asked for first. `say` tells the user which account or right is missing."""
        self._cluster = cluster
        self._namespace = namespace
        self._everywhere = everywhere
        self._say = say
        self._clock = clock
        self._shown: dict[str, _Shown] = {}

    def headers(self, home: str, namespace: str) -> Mapping[str, str]:
        """Return the header with the token for a question about a namespace; empty if the command gets none.

        `home` is the namespace of the coordinators. May raise any ClusterError but NotFound and Forbidden.
        """
        namespace = namespace or self._namespace
        shown = self._shown.get(namespace)
        if shown is None or self._clock() >= shown.until:
            found = self._find(home, namespace)
            shown = self._shown[namespace] = _Shown(found, self._clock() + RENEWED_SECONDS if found else math.inf)
        return shown.headers

    def _find(self, home: str, namespace: str) -> Mapping[str, str]:
        """Return the header for the first account of which the command gets a token. The account for all namespaces is
        tried last where nobody asks for them: it is there for admins whose namespace has no account of users."""
        accounts = [(namespace, ACCOUNT), (home, READER_ACCOUNT)]
        refused = ""
        for where, account in reversed(accounts) if self._everywhere else accounts:
            try:
                token = self._cluster.account_token(where, account, AUDIENCE, TOKEN_SECONDS)
            except (errors.NotFound, errors.Forbidden) as error:
                refused = refused or describe(error, where, account)
                continue
            if refused and self._everywhere:
                self._say(f"note: jobs of other namespaces are not named: {refused}")
            return MappingProxyType({HEADER: token})
        self._say(f"note: jobs are not named: {refused}")
        return MappingProxyType({})


def describe(error: errors.ClusterError, namespace: str, account: str) -> str:
    """Return why a command gets no token of an account, and who can change that."""
    if isinstance(error, errors.Forbidden):
        return str(error)
    grant = GRANTS[account].format(namespace=namespace)
    return f"there is no account {namespace}/{account}: an admin runs `{grant} | kubectl apply -f -`"
