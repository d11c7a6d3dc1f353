"""The code of runs in files: the ConfigMaps that a dry run has printed beside their TorchJob.

One rule: the submitted code is the same as the printed code, or the submission is refused.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from coordinator.code import config_maps
from coordinator.code.archive import Archive
from coordinator.runs.errors import InvalidRun
from crds import labels
from crds.api_resources import CONFIG_MAPS


def is_code(body: Any) -> bool:
    """Return whether a document is a ConfigMap with code of a run."""
    if not isinstance(body, dict) or (body.get("apiVersion"), body.get("kind")) != ("v1", CONFIG_MAPS.kind):
        return False
    return bool(code_of(body))


def code_of(body: Any) -> str:
    """Return the beginning of the digest of the code that a document has or needs; empty if the document has no
    code."""
    metadata = body.get("metadata") if isinstance(body, dict) else None
    found = metadata.get("labels") if isinstance(metadata, dict) else None
    return str(found.get(labels.CODE) or "") if isinstance(found, dict) else ""


def archives(documents: Iterable[tuple[str, Any]]) -> dict[str, Archive]:
    """Return the archives of ConfigMaps, by the beginning of their digests.

    Raises InvalidRun, with the source of the document, for content whose digest is not the one in the name.
    """
    parts: dict[str, dict[int, bytes]] = {}
    sources: dict[str, str] = {}
    for source, body in documents:
        short, number = code_of(body), str(body["metadata"].get("name") or "").rpartition("-")[2]
        sources.setdefault(short, source)
        with _refusals_of(source):
            parts.setdefault(short, {})[int(number) if number.isdecimal() else 0] = config_maps.content(body)
    found = {}
    for short, source in sources.items():
        with _refusals_of(source):
            found[short] = config_maps.join(short, [content for _, content in sorted(parts[short].items())])
    return found


@contextmanager
def _refusals_of(source: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise InvalidRun(f"{source}: {error}") from error
