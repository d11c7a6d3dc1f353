"""Tokens of ServiceAccounts, which a client shows to another program and that program has reviewed here.

One rule: nothing is stored. A token is `BODY.CODE`: who it is for, its audiences and its end as JSON, and an HMAC of
them with the server's own token. So it is of no use as the server's own token.
"""

import base64
import binascii
import hashlib
import hmac
import time
from collections.abc import Mapping
from typing import Any

import orjson

from crds import timestamps

LEAST_SECONDS = 600
"""The shortest time for which Kubernetes makes tokens."""
MOST_SECONDS = 86_400
_PURPOSE = b"token of a ServiceAccount "


def account_of(path: str) -> tuple[str, str] | None:
    """Return the namespace and name of the account whose tokens are at a path; None for any other path."""
    match path.strip("/").split("/"):
        case ["api", "v1", "namespaces", namespace, "serviceaccounts", name, "token"] if namespace and name:
            return namespace, name
    return None


def make(account: tuple[str, str], spec: Mapping[str, Any], bearer: str) -> dict[str, Any]:
    """Return the status of a TokenRequest. Every account exists."""
    asked = spec.get("expirationSeconds")
    until = int(time.time()) + min(max(asked if type(asked) is int else LEAST_SECONDS, LEAST_SECONDS), MOST_SECONDS)
    namespace, name = account
    user = f"system:serviceaccount:{namespace}:{name}"
    body = orjson.dumps({"user": user, "audiences": _texts(spec.get("audiences")), "until": until})
    token = f"{base64.urlsafe_b64encode(body).decode()}.{_code(body, bearer)}"
    return {"token": token, "expirationTimestamp": timestamps.format_time(until)}


def review(spec: Mapping[str, Any], bearer: str) -> dict[str, Any]:
    """Return the status of a TokenReview."""
    text, _, code = str(spec.get("token", "")).partition(".")
    try:
        body = base64.urlsafe_b64decode(text)
    except (binascii.Error, ValueError):
        body = b""
    if not hmac.compare_digest(_code(body, bearer).encode(), code.encode(errors="replace")):
        return {"authenticated": False, "error": "this server has not made the token"}
    made = orjson.loads(body)
    asked = _texts(spec.get("audiences"))
    audiences = [each for each in made["audiences"] if each in asked]
    if made["until"] <= time.time() or not audiences:
        return {"authenticated": False, "error": "the token has expired, or is for another audience"}
    return {"authenticated": True, "user": {"username": made["user"]}, "audiences": audiences}


def _code(body: bytes, bearer: str) -> str:
    return hmac.new(bearer.encode(), _PURPOSE + body, hashlib.sha256).hexdigest()


def _texts(value: Any) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
