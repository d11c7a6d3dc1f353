"""Reviews of identity and permissions. Every client with the server's token has one name and may do everything.

One rule: reviews store nothing and read no object. Tokens of accounts are the only ones whose answer depends on the
request: who asks for one gets it, and a review tells for which account it was made (`account_tokens`).
"""

from collections.abc import Callable, Mapping
from typing import Any

import orjson

from embedded.apiserver import status_errors
from embedded.apiserver.http import account_tokens
from kube.api import Manifest

USER = "torchq-local"
AUTHENTICATION, AUTHORIZATION = "authentication.k8s.io", "authorization.k8s.io"
_EVERYTHING: dict[str, Any] = {
    "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
    "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    "incomplete": False,
}
Spec = Mapping[str, Any]
_KINDS: dict[str, tuple[str, Callable[[Spec, str], dict[str, Any]]]] = {
    f"/apis/{AUTHENTICATION}/v1/selfsubjectreviews": (
        "SelfSubjectReview",
        lambda *_: {"userInfo": {"username": USER, "groups": ["system:masters", "system:authenticated"]}},
    ),
    f"/apis/{AUTHORIZATION}/v1/selfsubjectaccessreviews": ("SelfSubjectAccessReview", lambda *_: {"allowed": True}),
    f"/apis/{AUTHORIZATION}/v1/selfsubjectrulesreviews": ("SelfSubjectRulesReview", lambda *_: dict(_EVERYTHING)),
    f"/apis/{AUTHORIZATION}/v1/subjectaccessreviews": ("SubjectAccessReview", lambda *_: {"allowed": True}),
    f"/apis/{AUTHENTICATION}/v1/tokenreviews": ("TokenReview", account_tokens.review),
}


def serves(path: str) -> bool:
    """Return whether a path is the path of a review, or of the tokens of an account."""
    return path in _KINDS or account_tokens.account_of(path) is not None


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


def answer(method: str, path: str, body: bytes, bearer: str) -> Manifest:
    """Return the review, or the request for a token, with its status. `bearer` is the token of the server."""
    if method != "POST":
        raise status_errors.method_not_allowed()
    # What clients ask about themselves is answered whatever they send: kubectl sends its own encoding.
    spec = {} if _KINDS.get(path, ("", None))[0].startswith("Self") else _spec(body)
    if (account := account_tokens.account_of(path)) is not None:
        kind, api_version = "TokenRequest", f"{AUTHENTICATION}/v1"
        status = account_tokens.make(account, spec, bearer)
    else:
        kind, describe = _KINDS[path]
        api_version, status = path.removeprefix("/apis/").rpartition("/")[0], describe(spec, bearer)
    return {"kind": kind, "apiVersion": api_version, "metadata": {}, "spec": dict(spec), "status": status}


def _spec(body: bytes) -> Spec:
    """Return the spec in a body."""
    try:
        document = orjson.loads(body) if body else {}
        spec = document.get("spec") or {}
        return {**spec}
    except (orjson.JSONDecodeError, AttributeError, TypeError):
        raise status_errors.bad_request("the body is not a review as JSON") from None
