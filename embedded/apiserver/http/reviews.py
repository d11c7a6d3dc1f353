"""Questions about oneself: who am I, what may I do. Here: the one who holds the token, and everything.

One rule: nothing is stored, and nothing is read: whatever is asked, the answer is the same.
"""

from collections.abc import Callable
from typing import Any

from embedded.apiserver import status_errors
from kube.api import Manifest

USER = "torchq-local"
AUTHENTICATION, AUTHORIZATION = "authentication.k8s.io", "authorization.k8s.io"
_EVERYTHING: dict[str, Any] = {
    "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
    "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    "incomplete": False,
}
_KINDS: dict[str, tuple[str, Callable[[], dict[str, Any]]]] = {
    f"/apis/{AUTHENTICATION}/v1/selfsubjectreviews": (
        "SelfSubjectReview",
        lambda: {"userInfo": {"username": USER, "groups": ["system:masters", "system:authenticated"]}},
    ),
    f"/apis/{AUTHORIZATION}/v1/selfsubjectaccessreviews": ("SelfSubjectAccessReview", lambda: {"allowed": True}),
    f"/apis/{AUTHORIZATION}/v1/selfsubjectrulesreviews": ("SelfSubjectRulesReview", lambda: dict(_EVERYTHING)),
}


def serves(path: str) -> bool:
    """Whether a path is one of these questions."""
    return path in _KINDS


def resources(group: str, version: str) -> list[dict[str, Any]]:
    """What discovery says of them."""
    root = f"/apis/{group}/{version}/"
    return [
        {
            "name": path.removeprefix(root),
            "singularName": kind.lower(),
            "namespaced": False,
            "kind": kind,
            "verbs": ["create"],
        }
        for path, (kind, _) in _KINDS.items()
        if path.startswith(root)
    ]


def answer(method: str, path: str) -> Manifest:
    """The review with its status."""
    kind, status = _KINDS[path]
    if method != "POST":
        raise status_errors.method_not_allowed()
    api_version = path.removeprefix("/apis/").rpartition("/")[0]
    return {"kind": kind, "apiVersion": api_version, "metadata": {}, "spec": {}, "status": status()}
