"""Reviews of a client's own identity and permissions. Every client with the token has one name and may do everything.

One rule: reviews store nothing and read nothing; the answer does not depend on the request.
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
    """Return whether a path is the path of a review."""
    return path in _KINDS


def resources(group: str, version: str) -> list[dict[str, Any]]:
    """Return the discovery entries of the reviews in a group and version."""
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
    """Return the review with its status."""
    kind, status = _KINDS[path]
    if method != "POST":
        raise status_errors.method_not_allowed()
    api_version = path.removeprefix("/apis/").rpartition("/")[0]
    return {"kind": kind, "apiVersion": api_version, "metadata": {}, "spec": {}, "status": status()}
