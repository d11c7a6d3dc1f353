"""What validation found, in the words and paths of a Kubernetes API server.

One rule: a user reads the same sentence from the command line as from the server, and nothing of the library behind it.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from crds.errors import Problem

Location = Sequence[str | int]


def find(model: type[BaseModel], value: Any, at: str = "") -> list[Problem]:
    """Everything wrong with a value as this model sees it; empty if it is fine. `at` is the path of the value."""
    try:
        model.model_validate(value, by_alias=True, by_name=False)
    except ValidationError as error:
        return translate(error, at)
    return []


def translate(error: ValidationError, at: str = "") -> list[Problem]:
    """The problems a validation found, with paths below `at`."""
    details = error.errors(include_url=False, include_context=True)
    return [Problem(path(each["loc"], at), _message(each, path(each["loc"], at))) for each in details]


def path(location: Location, at: str = "") -> str:
    """A field's path as the API server writes it: `spec.tasks.Worker.ports[0].name`."""
    text = at
    for step in location:
        match step:
            case int():
                text += f"[{step}]"
            case "[key]":
                continue
            case _:
                text += f".{step}" if text else step
    return text


def _message(details: ErrorDetails, where: str) -> str:
    kind, context = details["type"], details.get("ctx", {})
    if kind == "missing":
        return "Required value"
    if kind == "extra_forbidden":
        return f'unknown field "{where}"'
    if kind == "literal_error":
        return f"Unsupported value: {shown(details['input'])}: supported values: {_choices(context['expected'])}"
    if kind in _BODY:
        return f"Invalid value: {shown(details['input'])}: {where} in body {_BODY[kind](context)}"
    if kind in _TYPES:
        return f"Invalid value: {shown(details['input'])}: {where} in body must be of type {_TYPES[kind]}"
    return f"Invalid value: {shown(details['input'])}: {details['msg'].removeprefix('Value error, ')}"


_BODY: dict[str, Callable[[dict[str, Any]], str]] = {
    "greater_than_equal": lambda context: f"should be greater than or equal to {context['ge']}",
    "less_than_equal": lambda context: f"should be less than or equal to {context['le']}",
    "string_too_short": lambda context: f"should be at least {context['min_length']} chars long",
    "string_too_long": lambda context: f"should be at most {context['max_length']} chars long",
    "string_pattern_mismatch": lambda context: f"should match '{context['pattern']}'",
    "too_short": lambda context: f"should have at least {context['min_length']} items",
    "too_long": lambda context: f"should have at most {context['max_length']} items",
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


def _choices(expected: str) -> str:
    return ", ".join(sorted(f'"{word.strip(" ")[1:-1]}"' for word in expected.replace(" or ", ",").split(",")))


def shown(value: Any) -> str:
    """A value as the API server quotes it: scalars as they are, the rest by kind."""
    if isinstance(value, dict):
        return '"object"'
    if isinstance(value, list | tuple):
        return '"array"'
    return json.dumps(value, default=str)


def unique(found: Iterable[Problem]) -> tuple[Problem, ...]:
    """In order, each once."""
    return tuple(dict.fromkeys(found))
