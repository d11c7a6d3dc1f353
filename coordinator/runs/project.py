"""The defaults of a project: the table [tool.torchq] in the pyproject.toml of its folder.

One rule: what a user gives with a run comes first, and patterns of files to leave out are added to each other.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coordinator.runs.errors import InvalidRun
from coordinator.runs.fields import Fields

FILE = "pyproject.toml"
TABLE = "tool.torchq"
_FIELDS = ("image", "queue", "nodes", "gpus", "exclude")
_OF_ONE_ROLE = ("nodes", "gpus")


def with_defaults(document: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return the document of a run with the defaults of its folder. Raises InvalidRun with the file and the field."""
    return merge(document, read(folder))


def merge(document: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document with defaults where it has no value."""
    merged = {name: value for name, value in document.items() if value is not None}
    for name, value in defaults.items():
        if name == "exclude":
            merged[name] = [*value, *merged.get(name, ())]
        elif not (name in _OF_ONE_ROLE and "roles" in merged):
            merged.setdefault(name, value)
    return merged


def read(folder: Path) -> dict[str, Any]:
    """Return the defaults of a folder; none without such a file or table."""
    path = folder / FILE
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise InvalidRun(f"{path}: cannot be read ({error.strerror})") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidRun(f"{path}: not TOML: {error}") from error
    tools = tables.get("tool")
    declared = tools.get("torchq") if isinstance(tools, dict) else None
    return _check(declared, path) if declared is not None else {}


def _check(declared: Any, path: Path) -> dict[str, Any]:
    fields = Fields(declared, _FIELDS, f"{path}: {TABLE}")
    found: dict[str, Any] = {name: fields.text(name) for name in ("image", "queue") if name in fields}
    least = {"nodes": 1, "gpus": 0}
    found |= {name: fields.whole(name, 0, least[name]) for name in _OF_ONE_ROLE if name in fields}
    if "exclude" in fields:
        found["exclude"] = list(fields.texts("exclude"))
    return found
