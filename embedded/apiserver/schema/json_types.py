"""The types of JSON values, by their names in a schema.

One rule: in Python, True is an integer; in a schema, it is not.
"""

from typing import Any

_NAMES = {type(None): "null", bool: "boolean", int: "integer", str: "string", list: "array", dict: "object"}
_GO_NAMES = {str: "string", int: "number", float: "number", bool: "bool", list: "array", dict: "object"}


def json_type(value: Any) -> str:
    """Return the JSON Schema name of a value's type."""
    if value.__class__ is float:
        return "integer" if value.is_integer() else "number"
    return _NAMES.get(value.__class__, "object")


def go_type_name(value: Any) -> str:
    """Return Go's name for the type of a JSON value, for the messages of a Kubernetes API server."""
    return _GO_NAMES.get(type(value), "null")
