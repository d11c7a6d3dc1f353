"""The types of JSON values, by their names in a schema.

One rule: Python calls true an integer; a schema does not.
"""

from typing import Any


def json_type(value: Any) -> str:
    """The JSON Schema name of a value's type."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "integer" if value.is_integer() else "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"
