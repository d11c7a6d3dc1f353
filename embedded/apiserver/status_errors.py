"""What the embedded API server says no with: Status objects as a Kubernetes API server words them.

One rule: every refusal names the object, and every wrong field is one cause with its path.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from crds.api_resources import Resource


@dataclass(frozen=True, slots=True)
class Cause:
    """One thing wrong in an object: where, what, and the API's word for the kind of mistake."""

    field: str
    message: str
    reason: str = "FieldValueInvalid"


class Refusal(Exception):
    """A request that is answered with a Status object instead of a result."""

    def __init__(self, code: int, reason: str, message: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.details = details
        self.warnings: tuple[str, ...] = ()
        """What the client is to be warned of besides."""
        self.page = ""
        """What is said instead of a Status, as plain text."""

    def status(self) -> dict[str, Any]:
        """The Status object, as body of an answer or as object of an ERROR event."""
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
"""The Status of a create that leaves no object of its own."""


def success(resource: Resource, name: str, uid: str) -> dict[str, Any]:
    """The Status of a deletion that left nothing to show."""
    details = {"name": name, **_group(resource), "kind": resource.plural, "uid": uid}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


def bad_request(message: str) -> Refusal:
    """400: the request cannot be read."""
    return Refusal(400, "BadRequest", message)


def unauthorized() -> Refusal:
    """401: no bearer token, or a wrong one."""
    return Refusal(401, "Unauthorized", "Unauthorized")


def forbidden(resource: Resource, name: str, why: str, causes: Sequence[Cause] = ()) -> Refusal:
    """403: the rules of the cluster do not allow it."""
    message = f'{_plural(resource)} "{name}" is forbidden: {why}'
    return Refusal(403, "Forbidden", message, _details(resource, name, resource.plural, causes))


def not_found(resource: Resource, name: str) -> Refusal:
    """404: there is no such object."""
    message = f'{_plural(resource)} "{name}" not found'
    return Refusal(404, "NotFound", message, _details(resource, name, resource.plural))


def no_such_path() -> Refusal:
    """404: there is no such resource."""
    return Refusal(404, "NotFound", "the server could not find the requested resource", {})


def no_such_page() -> Refusal:
    """404 where no part of the API answers: text."""
    refusal = no_such_path()
    refusal.page = "404 page not found\n"
    return refusal


def not_offered(what: str, instead: str) -> Refusal:
    """405: a real cluster has it, this one does not."""
    return Refusal(405, "MethodNotAllowed", f"{what} is not offered by the embedded cluster: {instead}")


def method_not_allowed() -> Refusal:
    """405: the resource does not know this verb."""
    return Refusal(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")


def already_exists(resource: Resource, name: str, *, made_up: bool = False, leaving: bool = False) -> Refusal:
    """409: the name is taken; `made_up`: by an object that could as well have another one; `leaving`: it is going."""
    message = f'{"object is being deleted: " if leaving else ""}{_plural(resource)} "{name}" already exists'
    details = _details(resource, name, resource.plural)
    if made_up:
        message += ", the server was not able to generate a unique name for the object"
        details["retryAfterSeconds"] = 1
    return Refusal(409, "AlreadyExists", message, details)


def conflict(resource: Resource, name: str, why: str = "", *, by_kind: bool = False) -> Refusal:
    """409: the object is not the one the caller has read. Deletions call the resource by its kind."""
    why = why or "the object has been modified; please apply your changes to the latest version and try again"
    word = replace(resource, plural=resource.kind) if by_kind else resource
    message = f'Operation cannot be fulfilled on {_plural(word)} "{name}": {why}'
    return Refusal(409, "Conflict", message, _details(resource, name, word.plural))


def expired(message: str) -> Refusal:
    """410: the resourceVersion or the continue token is too old."""
    return Refusal(410, "Expired", message)


def too_large(version: int, current: int) -> Refusal:
    """504: the resourceVersion is yet to come."""
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    message = f"Timeout: Too large resource version: {version}, current: {current}"
    return Refusal(504, "Timeout", message, {"causes": [cause], "retryAfterSeconds": 1})


def unknown_media_type() -> Refusal:
    """415: a patch of a built-in resource in a format this server does not read."""
    return Refusal(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})


def unsupported_media_type(accepted: Iterable[str]) -> Refusal:
    """415: a body in a format this server does not read."""
    message = f"the body of the request was in an unknown format - accepted media types include: {', '.join(accepted)}"
    return Refusal(415, "UnsupportedMediaType", message)


def invalid(resource: Resource, name: str, causes: Sequence[Cause]) -> Refusal:
    """422: the object is wrong, by field."""
    kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    texts = list(dict.fromkeys(f"{cause.field}: {cause.message}" for cause in causes))
    text = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    details = _details(resource, name, resource.kind, causes)
    return Refusal(422, "Invalid", f'{kind} "{name}" is invalid: {text}', details)


def unreadable_patch(message: str) -> Refusal:
    """422: what a patch leaves is no object."""
    cause = Cause("patch", f"Invalid value: {message}")
    return invalid(Resource("", "", "", ""), "", [cause])


def inapplicable_patch() -> Refusal:
    """422: a JSON patch does not apply. A Kubernetes API server does not say why."""
    return Refusal(422, "Invalid", "the server rejected our request due to an error in our request", {})


def no_room(message: str) -> Refusal:
    """507: the disk is full. A Kubernetes API server, whose disk is another machine's, has no such answer."""
    return Refusal(507, "InsufficientStorage", message)


def internal(message: str) -> Refusal:
    """500: this server failed."""
    return Refusal(500, "InternalError", f"Internal error occurred: {message}")


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


# Causes, worded as the field package of a Kubernetes API server words them.


def shown(value: Any) -> str:
    """A value as the API server prints it in a message."""
    return orjson.dumps(value).decode()


def wrong(field: str, value: Any, detail: str) -> Cause:
    """The value does not do."""
    return Cause(field, f"Invalid value: {shown(value)}: {detail}")


def wrong_type(field: str, value: Any, detail: str) -> Cause:
    """The value is of another type than asked for; the value shown is its type's name."""
    return Cause(field, f"Invalid value: {shown(value)}: {detail}", "FieldValueTypeInvalid")


BLOCKING = frozenset(f"FieldValue{word}" for word in ("NotSupported", "Required", "TooLong", "TooMany", "TypeInvalid"))
"""Reasons of causes after which no validation rule is run."""

UNCHECKED_RULES = Cause(
    "<nil>",
    "Invalid value: null: some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation",
)


def required(field: str, detail: str = "") -> Cause:
    """The value is missing."""
    return Cause(field, f"Required value: {detail}" if detail else "Required value", "FieldValueRequired")


def unsupported(field: str, value: Any, choices: Iterable[Any]) -> Cause:
    """The value is not one of those allowed."""
    known = ", ".join(shown(choice) for choice in choices)
    return Cause(field, f"Unsupported value: {shown(value)}: supported values: {known}", "FieldValueNotSupported")


def duplicate(field: str, value: Any) -> Cause:
    """The value is there twice."""
    return Cause(field, f"Duplicate value: {shown(value)}", "FieldValueDuplicate")


def immutable(field: str, value: Any) -> Cause:
    """The value may not change."""
    return wrong(field, value, "field is immutable")


def not_allowed(field: str, detail: str) -> Cause:
    """The field may not be set, or not be changed."""
    return Cause(field, f"Forbidden: {detail}", "FieldValueForbidden")


def too_long(field: str, most: int) -> Cause:
    """The text has too many bytes."""
    return Cause(field, f"Too long: may not be more than {most} bytes", "FieldValueTooLong")


def too_many(field: str, count: int, most: int) -> Cause:
    """The list or map has too many items."""
    return Cause(field, f"Too many: {count}: must have at most {most} items", "FieldValueTooMany")
