"""The errors of the embedded API server: Status objects with the messages of a Kubernetes API server.

One rule: every error names the object, and every wrong field is one cause with its path.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from crds.api_resources import Resource


@dataclass(frozen=True, slots=True)
class Cause:
    """One error in an object: the field, the message, and the API's reason."""

    field: str
    message: str
    reason: str = "FieldValueInvalid"


class StatusError(Exception):
    """A request that is answered with a Status object instead of a result."""

    def __init__(self, code: int, reason: str, message: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.details = details
        self.warnings: tuple[str, ...] = ()
        """The warnings for the client, beside the error."""
        self.page = ""
        """The plain text of an answer without a Status; empty if the answer is a Status."""

    def status(self) -> dict[str, Any]:
        """Return the Status object, for the body of an answer or for the object of an ERROR event."""
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": str(self),
            **({"reason": self.reason} if self.reason else {}),
            **({"details": self.details} if self.details is not None else {}),
            "code": self.code,
        }


CREATED = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
"""The Status of a create that stores no object of its own."""


def success(resource: Resource, name: str, uid: str) -> dict[str, Any]:
    """Return the Status of a deletion that removed the object."""
    details = {"name": name, **_group(resource), "kind": resource.plural, "uid": uid}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


def bad_request(message: str) -> StatusError:
    """Return a 400: the request cannot be parsed."""
    return StatusError(400, "BadRequest", message)


def forbidden(resource: Resource, name: str, why: str, causes: Sequence[Cause] = ()) -> StatusError:
    """Return a 403: the rules of the cluster do not allow the request."""
    message = f'{_plural(resource)} "{name}" is forbidden: {why}'
    return StatusError(403, "Forbidden", message, _details(resource, name, resource.plural, causes))


def not_found(resource: Resource, name: str) -> StatusError:
    """Return a 404: there is no such object."""
    message = f'{_plural(resource)} "{name}" not found'
    return StatusError(404, "NotFound", message, _details(resource, name, resource.plural))


def no_such_path() -> StatusError:
    """Return a 404: there is no such resource."""
    return StatusError(404, "NotFound", "the server could not find the requested resource", {})


def no_such_page() -> StatusError:
    """Return a 404 as plain text: the path is outside the API."""
    refusal = no_such_path()
    refusal.page = "404 page not found\n"
    return refusal


def not_offered(what: str, instead: str) -> StatusError:
    """Return a 405: a real cluster offers this request, the embedded cluster does not."""
    return StatusError(405, "MethodNotAllowed", f"{what} is not offered by the embedded cluster: {instead}")


def method_not_allowed() -> StatusError:
    """Return a 405: the resource does not support this verb."""
    return StatusError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")


def already_exists(resource: Resource, name: str, *, made_up: bool = False, leaving: bool = False) -> StatusError:
    """Return a 409: the name is taken. `made_up`: the new name was generated; `leaving`: the object is in deletion."""
    message = f'{"object is being deleted: " if leaving else ""}{_plural(resource)} "{name}" already exists'
    details = _details(resource, name, resource.plural)
    if made_up:
        message += ", the server was not able to generate a unique name for the object"
        details["retryAfterSeconds"] = 1
    return StatusError(409, "AlreadyExists", message, details)


def conflict(resource: Resource, name: str, why: str = "", *, by_kind: bool = False) -> StatusError:
    """Return a 409: the object is not the version that the caller has read. A deletion names the kind, not the
    resource.
    """
    why = why or "the object has been modified; please apply your changes to the latest version and try again"
    title = replace(resource, plural=resource.kind) if by_kind else resource
    message = f'Operation cannot be fulfilled on {_plural(title)} "{name}": {why}'
    return StatusError(409, "Conflict", message, _details(resource, name, title.plural))


def expired(message: str) -> StatusError:
    """Return a 410: the resourceVersion or the continue token is too old."""
    return StatusError(410, "Expired", message)


def unsupported_media_type(accepted: Iterable[str]) -> StatusError:
    """Return a 415: a body is in a format that this server does not support."""
    message = f"the body of the request was in an unknown format - accepted media types include: {', '.join(accepted)}"
    return StatusError(415, "UnsupportedMediaType", message)


def invalid(resource: Resource, name: str, causes: Sequence[Cause]) -> StatusError:
    """Return a 422: the object is invalid, with one cause for each wrong field."""
    kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    texts = list(dict.fromkeys(f"{cause.field}: {cause.message}" for cause in causes))
    text = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    details = _details(resource, name, resource.kind, causes)
    return StatusError(422, "Invalid", f'{kind} "{name}" is invalid: {text}', details)


def unreadable_patch(message: str) -> StatusError:
    """Return a 422: the result of a patch is not an object of the kind."""
    cause = Cause("patch", f"Invalid value: {message}")
    return invalid(Resource("", "", "", ""), "", [cause])


def insufficient_storage(message: str) -> StatusError:
    """Return a 507: the disk is full. A Kubernetes API server does not have this error: its data are on the disk of
    etcd.
    """
    return StatusError(507, "InsufficientStorage", message)


def internal(message: str) -> StatusError:
    """Return a 500: this server failed."""
    return StatusError(500, "InternalError", f"Internal error occurred: {message}")


def _plural(resource: Resource) -> str:
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural


def _group(resource: Resource) -> dict[str, str]:
    return {"group": resource.group} if resource.group else {}


def _details(resource: Resource, name: str, kind: str, causes: Sequence[Cause] = ()) -> dict[str, Any]:
    details: dict[str, Any] = {**({"name": name} if name else {}), **_group(resource)}
    if kind:
        details["kind"] = kind
    if causes:
        details["causes"] = [{"reason": c.reason, "message": c.message, "field": c.field} for c in causes]
    return details


# Causes, with the messages of the package `field` of a Kubernetes API server.


def format_value(value: Any) -> str:
    """Return a value as a Kubernetes API server prints it in a message."""
    return orjson.dumps(value).decode()


def invalid_value(field: str, value: Any, detail: str) -> Cause:
    """Return the cause for an invalid value."""
    return Cause(field, f"Invalid value: {format_value(value)}: {detail}")


def invalid_values(field: str, value: Any, details: Iterable[str]) -> Iterator[Cause]:
    """Yield a cause for each of the problems of a value; an empty detail yields no cause."""
    return (invalid_value(field, value, detail) for detail in details if detail)


def wrong_type(field: str, value: Any, detail: str) -> Cause:
    """Return the cause for a value of the wrong type; `value` is the name of its type."""
    return Cause(field, f"Invalid value: {format_value(value)}: {detail}", "FieldValueTypeInvalid")


BLOCKING = frozenset(f"FieldValue{kind}" for kind in ("NotSupported", "Required", "TooLong", "TooMany", "TypeInvalid"))
"""The reasons of causes after which no validation rule is run."""

UNCHECKED_RULES = Cause(
    "<nil>",
    "Invalid value: null: some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation",
)


def required(field: str, detail: str = "") -> Cause:
    """Return the cause for a missing value."""
    return Cause(field, f"Required value: {detail}" if detail else "Required value", "FieldValueRequired")


def not_supported(field: str, value: Any, choices: Iterable[Any]) -> Cause:
    """Return the cause for a value that is not one of the allowed values."""
    values = ", ".join(format_value(choice) for choice in choices)
    return Cause(
        field, f"Unsupported value: {format_value(value)}: supported values: {values}", "FieldValueNotSupported"
    )


def duplicate(field: str, value: Any) -> Cause:
    """Return the cause for a repeated value."""
    return Cause(field, f"Duplicate value: {format_value(value)}", "FieldValueDuplicate")


def immutable(field: str, value: Any) -> Cause:
    """Return the cause for a changed value that may not change."""
    return invalid_value(field, value, "field is immutable")


def not_allowed(field: str, detail: str) -> Cause:
    """Return the cause for a field that may not be set, or not be changed."""
    return Cause(field, f"Forbidden: {detail}", "FieldValueForbidden")


def too_long(field: str, most: int) -> Cause:
    """Return the cause for a text with too many bytes."""
    return Cause(field, f"Too long: may not be more than {most} bytes", "FieldValueTooLong")


def too_many(field: str, count: int, most: int) -> Cause:
    """Return the cause for a list or map with too many items."""
    return Cause(field, f"Too many: {count}: must have at most {most} items", "FieldValueTooMany")
