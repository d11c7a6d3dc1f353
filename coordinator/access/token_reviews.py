"""The reviews of tokens by the API server: which account has shown a token, and whose TorchJobs it may list.

One rule: no token is stored, logged or written into a message. The result of a review is kept for a short time under
the token's digest, so that a command costs one review, whatever it asks.
"""

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from coordinator.access.readers import AUDIENCE, EVERYWHERE, Reader
from crds.api_resources import SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS, TORCHJOBS
from kube.api import Cluster

KEPT_SECONDS = 30.0
"""How long the result of a review is used: a right that was taken away ends so much later."""
MOST_KEPT = 1024
_IDENTITY = ("uid", "groups", "extra")
_SERVICE_ACCOUNT = "system:serviceaccount:"


class TokenReviews:
    """Reviews tokens; safe to share between threads."""

    def __init__(self, cluster: Cluster, clock: Callable[[], float] = time.monotonic) -> None:
        self._cluster = cluster
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: OrderedDict[bytes, tuple[float, Reader | None]] = OrderedDict()
        """The newest results by the digest of the token, oldest first, each with the time of its end."""

    def reader(self, token: str) -> Reader | None:
        """Return who has shown a token; None for a token that the API server does not accept for this audience.

        Raises ClusterError if the API server does not answer.
        """
        digest = hashlib.sha256(token.encode()).digest()
        with self._lock:
            until, reader = self._kept.get(digest, (0.0, None))
        if self._clock() < until:
            return reader
        reader = self._review(token)
        with self._lock:
            self._kept[digest] = self._clock() + KEPT_SECONDS, reader
            self._kept.move_to_end(digest)
            while len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        return reader

    def _review(self, token: str) -> Reader | None:
        status = self._ask(TOKEN_REVIEWS, {"token": token, "audiences": [AUDIENCE]})
        # A server that knows no audiences names none: its tokens are for everybody, so for nobody here.
        if not status.get("authenticated") or AUDIENCE not in (status.get("audiences") or ()):
            return None
        user = status.get("user") or {}
        if self._may_list(user, ""):
            return EVERYWHERE
        namespace = _namespace_of(str(user.get("username", "")))
        return Reader(namespaces=frozenset([namespace] if namespace and self._may_list(user, namespace) else []))

    def _may_list(self, user: dict[str, Any], namespace: str) -> bool:
        """Return whether a user may list the TorchJobs of a namespace, or, without a namespace, all TorchJobs."""
        attributes = {"verb": "list", "group": TORCHJOBS.group, "resource": TORCHJOBS.plural, "namespace": namespace}
        who = {"user": user.get("username", "")} | {name: user[name] for name in _IDENTITY if name in user}
        return bool(self._ask(SUBJECT_ACCESS_REVIEWS, {**who, "resourceAttributes": attributes}).get("allowed"))

    def _ask(self, review: Any, spec: dict[str, Any]) -> dict[str, Any]:
        answer = self._cluster.create(review, {"apiVersion": review.api_version, "kind": review.kind, "spec": spec})
        status: dict[str, Any] = answer.get("status") or {}
        return status


def _namespace_of(user: str) -> str:
    """Return the namespace of a ServiceAccount by the name of its user; empty for any other user."""
    return user.removeprefix(_SERVICE_ACCOUNT).partition(":")[0] if user.startswith(_SERVICE_ACCOUNT) else ""
