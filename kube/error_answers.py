"""Converts error answers of the API server to exceptions (`kube.errors`).

One rule: pure and total. Any status with any body (also a proxy's HTML page) becomes an error whose message says what
to do.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from crds import excerpts
from kube import errors

_STRICT = re.compile(r'(unknown|duplicate) field "([^"]+)"')
_PERMISSION = re.compile(r"""User "[^"]*" cannot |can't set finalizers|can't delete""")
"""The server's messages for an account without a permission. Quotas and policies are 403 too, with other messages."""
_LONGEST_TEXT = 300
_REJECTED = "the server does not accept these credentials; renew those in the kubeconfig"


def read(body: bytes) -> Mapping[str, Any]:
    """Return the metav1.Status in a body. If the body has no Status, return a Status with the text of the body as its
    message.
    """
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        parsed = body.decode("utf-8", "replace").strip()
    if isinstance(parsed, Mapping):
        return parsed
    return {"message": excerpts.excerpt(str(parsed), _LONGEST_TEXT)}


def error(code: int, status: Mapping[str, Any], action: str, permission_hint: str = "") -> errors.ClusterError:
    """Return the error for an HTTP status code and its Status; `action` describes the request: `create pods in
    namespace a`."""
    message = str(status.get("message") or f"HTTP status {code}")
    match code:
        case 400 | 413 | 422:
            return errors.Invalid(message, tuple(causes(status)))
        case 401:
            # An API server gives no details. A service behind its proxy gives its name, and says what it lacks.
            reason = message if status.get("details") else _REJECTED
            return errors.Unauthorized(f"could not {action}: {reason}")
        case 403:
            hint = permission_hint if _PERMISSION.search(message) else ""
            return errors.Forbidden("; ".join(filter(None, [f"not allowed to {action}: {message}", hint])))
        case 404:
            return errors.NotFound(_not_found(status, message, action))
        case 409:
            exists = status.get("reason") == "AlreadyExists"
            return errors.AlreadyExists(message) if exists else errors.Conflict(message)
        case 410:
            return errors.Expired(f"could not {action}: {message}")
        case 429:
            return errors.TooManyRequests(f"could not {action}: the server is overloaded; try again later ({message})")
        case 507:
            return errors.ServerError(f"could not {action}: {message}")
        case _ if code >= 500:
            return errors.ServerError(f"could not {action}: the server failed with {code}: {message}")
        case _:
            return errors.ClusterError(f"could not {action}: the server answered {code}: {message}")


def causes(status: Mapping[str, Any]) -> Iterator[errors.FieldCause]:
    """Yield the errors by field: from the Status' details, or from the message of a strict decoding error, which has no
    details."""
    listed = _details(status).get("causes")
    if isinstance(listed, list) and listed:
        for cause in filter(lambda entry: isinstance(entry, Mapping), listed):
            yield errors.FieldCause(str(cause.get("field", "")), str(cause.get("message", "")))
        return
    for kind, field in _STRICT.findall(str(status.get("message", ""))):
        yield errors.FieldCause(field, f"{kind} field")


def _details(status: Mapping[str, Any]) -> Mapping[str, Any]:
    details = status.get("details")
    return details if isinstance(details, Mapping) else {}


def _not_found(status: Mapping[str, Any], message: str, action: str) -> str:
    """Return the message for a 404. The server names a missing object; a missing resource gets another hint."""
    if _details(status).get("name"):
        return message
    hint = "if the server does not know this kind of object, install its definition (`torchq crds` prints torchq's)"
    return f"could not {action}: {message}; {hint}"
