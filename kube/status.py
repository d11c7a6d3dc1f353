"""From an answer of the API server to an error of our tree.

One rule: pure, and total: any status with any body (a proxy's HTML page too) becomes an error whose message says what
to do.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from crds import excerpts
from kube import errors

_STRICT = re.compile(r'(unknown|duplicate) field "([^"]+)"')
_PERMISSION = re.compile(r"""User "[^"]*" cannot |can't set finalizers""")
"""How the server says that an account lacks a permission; quotas and policies are 403 too, in other words."""
_LONGEST_TEXT = 300


def read(body: bytes) -> Mapping[str, Any]:
    """The metav1.Status in a body; if there is none, one that carries the text itself as its message."""
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        parsed = body.decode("utf-8", "replace").strip()
    if isinstance(parsed, Mapping):
        return parsed
    return {"message": excerpts.excerpt(str(parsed), _LONGEST_TEXT)}


def error(code: int, status: Mapping[str, Any], action: str, permission_hint: str = "") -> errors.ClusterError:
    """The error for an HTTP status code and its Status; `action` is what we tried: `create pods in namespace a`."""
    said = str(status.get("message") or f"HTTP status {code}")
    match code:
        case 400 | 413 | 422:
            return errors.Invalid(said, tuple(causes(status)))
        case 401:
            return errors.Unauthorized(
                f"could not {action}: the server does not accept these credentials; renew those in the kubeconfig"
            )
        case 403:
            hint = permission_hint if _PERMISSION.search(said) else ""
            return errors.Forbidden("; ".join(filter(None, [f"not allowed to {action}: {said}", hint])))
        case 404:
            return errors.NotFound(_not_found(status, said, action))
        case 409:
            return _conflict(status, said)
        case 410:
            return errors.Expired(f"could not {action}: {said}")
        case 429:
            return errors.TooManyRequests(f"could not {action}: the server is overloaded; try again later ({said})")
        case 507:
            return errors.ServerError(f"could not {action}: {said}")
        case _ if code >= 500:
            return errors.ServerError(f"could not {action}: the server failed with {code}: {said}")
        case _:
            return errors.ClusterError(f"could not {action}: the server answered {code}: {said}")


def causes(status: Mapping[str, Any]) -> Iterator[errors.FieldCause]:
    """What is wrong, by field: from the Status' details, or from a strict decoding error's message, which has none."""
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


def _conflict(status: Mapping[str, Any], said: str) -> errors.ClusterError:
    if status.get("reason") == "AlreadyExists":
        return errors.AlreadyExists(said)
    return errors.Conflict(said)


def _not_found(status: Mapping[str, Any], said: str, action: str) -> str:
    """A missing object is named by the server; a missing resource is not, and the remedy is another."""
    if _details(status).get("name"):
        return said
    hint = "if the server does not know this kind of object, install its definition (`torchq crds` prints torchq's)"
    return f"could not {action}: {said}; {hint}"
