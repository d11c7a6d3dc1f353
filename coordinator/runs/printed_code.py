"""The code of runs in files: the ConfigMaps that a dry run has printed beside their TorchJob.

One rule: pure. The code that is submitted again is the one that was printed, or it is refused.
"""

import base64
import binascii
import hashlib
from collections.abc import Iterable
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
    """Return the beginning of the digest of the code that a document has or needs; empty if it has none."""
    metadata = body.get("metadata") if isinstance(body, dict) else None
    found = metadata.get("labels") if isinstance(metadata, dict) else None
    return str(found.get(labels.CODE) or "") if isinstance(found, dict) else ""


def archives(documents: Iterable[tuple[str, Any]]) -> dict[str, Archive]:
    """Return the archives of ConfigMaps, by the beginning of their digests.

    Raises InvalidRun, with the source of the document, for content that is not what the name says.
    """
    parts: dict[str, dict[str, bytes]] = {}
    sources: dict[str, str] = {}
    for source, body in documents:
        short = code_of(body)
        sources.setdefault(short, source)
        parts.setdefault(short, {})[str(body["metadata"].get("name") or "")] = _content(source, body)
    return {short: _archive(short, found, sources[short]) for short, found in parts.items()}


def _content(source: str, body: dict[str, Any]) -> bytes:
    try:
        return base64.b64decode(body["binaryData"][config_maps.KEY], validate=True)
    except (KeyError, TypeError, ValueError, binascii.Error) as error:
        raise InvalidRun(f"{source}: binaryData.{config_maps.KEY}: is no code in base64") from error


def _archive(short: str, parts: dict[str, bytes], source: str) -> Archive:
    """Return the archive of parts whose names end with their numbers."""
    content = b"".join(parts[name] for name in sorted(parts, key=_number))
    digest = hashlib.sha256(content).hexdigest()
    if not digest.startswith(short) or len(short) != len(digest[:16]):
        raise InvalidRun(f"{source}: the ConfigMaps of code {short} have other content, or a part is missing")
    return Archive(content, digest, files=0)


def _number(name: str) -> int:
    text = name.rpartition("-")[2]
    return int(text) if text.isdecimal() else 0
