"""The columns of `kubectl get` for resources that are defined by CRDs.

One rule: a cell without a valid value is empty; it never prevents the other cells of its row.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from embedded.apiserver.kinds.catalog import Column, Kind
from embedded.apiserver.kinds.printing import ages
from embedded.apiserver.schema import json_paths
from kube.api import Manifest

NONE = "<none>"
"""The text of a cell of a built-in resource without a value."""


@dataclass(frozen=True, slots=True)
class PrintedColumn:
    """A column, and the function that computes its cell from an object and the current time."""

    column: Column
    cell: Callable[[Manifest, float], Any]
    format: str = ""


def get_spec(body: Manifest) -> dict[str, Any]:
    """Return the spec of an object; empty if the object has no spec."""
    return body.get("spec") or {}


def get_status(body: Manifest) -> dict[str, Any]:
    """Return the status of an object; empty if the object has no status."""
    return body.get("status") or {}


def column(title: str, read: Callable[[Manifest], Any], *, wide: bool = False, kind: str = "string") -> PrintedColumn:
    """Return a column that does not depend on the time."""

    def cell(body: Manifest, now: float) -> Any:  # noqa: ARG001
        return read(body)

    return PrintedColumn(Column(title, kind, "", 1 if wide else 0), cell)


def time_column(title: str, read: Callable[[Manifest, float], Any], *, wide: bool = False) -> PrintedColumn:
    """Return a column that shows the time since an event."""
    return PrintedColumn(Column(title, "string", "", 1 if wide else 0), read)


def name_column(*, wide: bool = False) -> PrintedColumn:
    """Return the column with the object's name."""
    return replace(column("Name", lambda body: body["metadata"]["name"], wide=wide), format="name")


def age_column() -> PrintedColumn:
    """Return the column with the age of the object, the last column of most tables."""
    return time_column("Age", lambda body, now: ages.ago(body["metadata"].get("creationTimestamp"), now))


def crd_columns(kind: Kind) -> list[PrintedColumn]:
    """Return the columns of a kind's definition; the column of the age if the definition has no columns."""
    columns = kind.columns or (Column("Age", "date", ".metadata.creationTimestamp"),)
    return [name_column(), *map(_printed, columns)]


def _printed(column: Column) -> PrintedColumn:
    def read(body: Manifest, now: float) -> Any:
        values = json_paths.find(body, column.path)
        return _cell(values[0], column.type, now) if values else None

    description = column.description or f"Custom resource definition column (in JSONPath format): {column.path}"
    return PrintedColumn(replace(column, description=description), read)


def _cell(value: Any, kind: str, now: float) -> Any:
    match kind, value:
        case "string", _:
            return format_go(value)
        case "date", str():
            return ages.ago(value, now)
        case (("integer" | "number"), bool()):
            return None
        case "integer", int() | float():
            return int(value)
        case "number", int() | float():
            return float(value)
        case "boolean", bool():
            return value
    return None


def format_go(value: Any) -> str:
    """Return a value as text, in the format of Go."""
    match value:
        case None:
            return "<nil>"
        case bool():
            return "true" if value else "false"
        case Mapping():
            return "map[" + " ".join(f"{key}:{format_go(value[key])}" for key in sorted(value)) + "]"
        case list():
            return "[" + " ".join(map(format_go, value)) + "]"
        case float() if value.is_integer() and abs(value) < 1e21:
            return str(int(value))
        case _:
            return str(value)
