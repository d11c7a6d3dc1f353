"""Validation problems, in the words and paths of a Kubernetes API server.

One rule: the command line and the server report a problem with the same sentence, without words of pydantic.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from crds.errors import InvalidObject, Problem

Location = Sequence[str | int]
_Model = TypeVar("_Model", bound=BaseModel)


def validate(model: type[_Model], manifest: Any) -> _Model:
    """Return a manifest as an object of a model. Raise InvalidObject with every problem."""
    try:
        return model.model_validate(manifest, by_alias=True, by_name=False)
    except ValidationError as error:
        raise InvalidObject(unique(translate(error))) from error


def find(model: type[BaseModel], value: Any, at: str = "") -> list[Problem]:
    """Return the problems of a value according to a model; empty if it is valid. `at` is the path of the value."""
    try:
        model.model_validate(value, by_alias=True, by_name=False)
    except ValidationError as error:
        return translate(error, at)
    return []


def translate(error: ValidationError, at: str = "") -> list[Problem]:
    """Return the problems of a failed validation, with paths below `at`."""
    return [_problem(details, at) for details in error.errors(include_url=False, include_context=True)]


def path(location: Location, at: str = "") -> str:
    """Return a field's path as the API server writes it: `spec.tasks.Worker.ports[0].name`."""
    text = at
    for step in location:
        match step:
            case int():
                text += f"[{step}]"
            case _:
                text += f".{step}" if text else step
    return text


def _problem(details: ErrorDetails, at: str) -> Problem:
    location = details["loc"]
    if location and location[-1] == "[key]":
        # The problem of an invalid key belongs to the map: there is no field of that name.
        return Problem(path(location[:-2], at), f"Invalid value: {quote(details['input'])}: {_key_message(details)}")
    where = path(location, at)
    return Problem(where, _message(details, where))


def _key_message(details: ErrorDetails) -> str:
    pattern = details.get("ctx", {}).get("pattern")
    return f"every key must match {pattern}" if pattern else details["msg"]


def _message(details: ErrorDetails, where: str) -> str:
    kind, value, context = details["type"], details["input"], details.get("ctx", {})
    match kind:
        case "missing":
            return "Required value"
        case "extra_forbidden":
            return f'unknown field "{where}"'
        case "literal_error":
            return f"Unsupported value: {quote(value)}: supported values: {_choices(context['expected'])}"
        case _ if kind in _BODY:
            return f"Invalid value: {quote(value)}: {where} in body {_BODY[kind](context)}"
        case _ if kind in _TYPES:
            return f'Invalid value: "{_type(value)}": {where} in body must be of type {_TYPES[kind]}: "{_type(value)}"'
        case _:
            return _size_message(details, where) or f"Invalid value: {quote(value)}: {_library_message(details)}"


def _size_message(details: ErrorDetails, where: str) -> str:
    """Return the message for a text, list or map of the wrong size; empty for any other problem."""
    value, context = details["input"], details.get("ctx", {})
    match details["type"]:
        case "string_too_long":
            return f"Too long: may not be more than {context['max_length']} bytes"
        case "too_long":
            return f"Too many: {len(value)}: must have at most {context['max_length']} items"
        case "too_short":
            members = "properties" if isinstance(value, dict) else "items"
            return (
                f"Invalid value: {len(value)}: {where} in body should have at least {context['min_length']} {members}"
            )
        case _:
            return ""


def _library_message(details: ErrorDetails) -> str:
    return details["msg"].removeprefix("Value error, ")


_BODY: dict[str, Callable[[dict[str, Any]], str]] = {
    "greater_than_equal": lambda context: f"should be greater than or equal to {context['ge']}",
    "less_than_equal": lambda context: f"should be less than or equal to {context['le']}",
    "string_too_short": lambda context: f"should be at least {context['min_length']} chars long",
    "string_pattern_mismatch": lambda context: f"should match '{context['pattern']}'",
}
_TYPES = {
    "int_type": "integer",
    "int_from_float": "integer",
    "string_type": "string",
    "bool_type": "boolean",
    "dict_type": "object",
    "model_type": "object",
    "model_attributes_type": "object",
    "list_type": "array",
    "tuple_type": "array",
}
_JSON_TYPES: dict[type, str] = {
    type(None): "null",
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    dict: "object",
    list: "array",
}


def _choices(expected: str) -> str:
    return ", ".join(f'"{choice.strip(" ")[1:-1]}"' for choice in expected.replace(" or ", ",").split(","))


def _type(value: Any) -> str:
    return _JSON_TYPES.get(type(value), type(value).__name__)


def quote(value: Any) -> str:
    """Return a value as the API server quotes it: a scalar as JSON, any other value by its type."""
    return f'"{_type(value)}"' if isinstance(value, dict | list | tuple) else json.dumps(value, default=str)


def unique(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Return the problems in their order, without duplicates."""
    return tuple(dict.fromkeys(problems))
