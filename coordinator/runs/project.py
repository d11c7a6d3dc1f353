"""The defaults of a project: the table [tool.torchq] in the pyproject.toml of its folder.

One rule: the options of a run come before the defaults of the project, and patterns of files to leave out are added to
each other.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coordinator.runs.document_fields import Fields
from coordinator.runs.errors import InvalidRun
from crds.torchjob.tasks import MOST_TASKS

FILE = "pyproject.toml"
TABLE = "tool.torchq"
_FIELDS = ("image", "queue", "nodes", "gpus", "exclude", "checkpoint_seconds", "autoscale", "grace")
_OF_ONE_ROLE = ("nodes", "gpus", "autoscale")


def with_defaults(document: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return the document of a run with the defaults of its folder. Raises InvalidRun with the file and the field."""
    return merge(document, read(folder))


def merge(document: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document with defaults where it has no value."""
    document = {name: value for name, value in document.items() if value is not None}
    merged = dict(document)
    for name, value in defaults.items():
        if name == "exclude":
            merged[name] = [*value, *merged.get(name, ())]
        elif not ((name in _OF_ONE_ROLE and "roles" in document) or (name == "autoscale" and "nodes" in document)):
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
    fields.duration("grace")  # it is checked here, and given on as it was written
    found: dict[str, Any] = {name: fields.text(name) for name in ("image", "queue", "grace") if name in fields}
    found |= {name: fields.whole(name, 0, 0) for name in ("gpus", "checkpoint_seconds") if name in fields}
    if "nodes" in fields:
        found["nodes"] = fields.range("nodes", 1, 1, MOST_TASKS)
    if "autoscale" in fields:
        found["autoscale"] = fields.flag("autoscale")
    if "exclude" in fields:
        found["exclude"] = list(fields.texts("exclude"))
    return found
