"""The documents of the files that a command is given.

One rule: a file is data of a user. Every problem of a file becomes a BadManifest that names the file and the place.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import yaml

from coordinator.cli.refusals import field_paths, foreign
from coordinator.errors import CoordinatorError
from kube import yamltext
from kube.api import Manifest

LARGEST_FILE = 32 * 1024 * 1024
"""The most bytes of one file: room for ten thousand jobs."""


_DOCUMENT = ", document "


class BadManifest(CoordinatorError):
    """A file contains a document that the command cannot use."""


def documents(path: str) -> Iterator[tuple[str, Any]]:
    """Yield the documents of a YAML file, each with its source for messages. Path `-` is standard input."""
    for number, body in enumerate(_load(path), start=1):
        if body is not None:
            yield (path if number == 1 else f"{path}{_DOCUMENT}{number}"), body


def line(source: str, field: str) -> int | None:
    """Return the line of a field in a document that `documents` has yielded with this source.

    The result is None if the file was standard input, or can no longer be read.
    """
    path, is_later, number = source.rpartition(_DOCUMENT)
    if not is_later or not number.isdecimal():
        path, number = source, "1"
    try:
        return None if path == "-" else field_paths.line(text(path), int(number), field)
    except BadManifest:
        return None


def as_map(value: Any, what: str) -> dict[str, Any]:
    """Return a map of a document; an empty map for a missing value. Raises BadManifest for any other value."""
    if value is not None and not isinstance(value, dict):
        raise BadManifest(f"{what}: must be a map")
    return value or {}


def as_json(body: Any, source: str) -> Manifest:
    """Convert YAML to JSON values, since YAML has keys and values that an API server does not accept."""
    try:
        manifest: Manifest = orjson.loads(orjson.dumps(body))
    except (orjson.JSONEncodeError, RecursionError) as error:
        raise BadManifest(
            f"{source}: cannot be sent as JSON ({error}); "
            "put quotes around keys such as on, yes or 1, and around dates and very long numbers"
        ) from error
    return manifest


def text(path: str, largest: int = LARGEST_FILE) -> str:
    """Read a file of UTF-8 text."""
    try:
        content = _content(path, largest + 1)
        if len(content) > largest:
            raise BadManifest(f"{path}: larger than {largest >> 20} MiB: split it into several files")
        return content.decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise BadManifest(f"{path}: {reason}") from error


def parse(path: str, content: str) -> list[Any]:
    """Return the documents of a YAML text, empty documents as None."""
    try:
        return list(yamltext.documents(content))
    except yaml.YAMLError as error:
        raise BadManifest(f"{path}: not YAML: {_yaml_problem(error)}") from error
    except (ValueError, RecursionError) as error:  # an invalid date, or too deep nesting
        raise BadManifest(f"{path}: not usable YAML: {error}") from error


def _load(path: str) -> list[Any]:
    content = text(path)
    if advice := foreign.advise_on_text(content):
        raise BadManifest(f"{path}: {advice}")
    return parse(path, content)


def _content(path: str, most: int) -> bytes:
    if path != "-":
        with Path(path).open("rb") as file:
            return file.read(most)
    if sys.stdin is None:
        raise BadManifest("-: standard input is closed")
    return sys.stdin.buffer.read(most)


def _yaml_problem(error: yaml.YAMLError) -> str:
    """Format the problem and its place in one line."""
    mark = getattr(error, "problem_mark", None)
    what = getattr(error, "problem", None) or next(iter(str(error).splitlines()), "no reason given")
    return f"line {mark.line + 1}, column {mark.column + 1}: {what}" if mark else what
