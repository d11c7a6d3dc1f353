"""The brief of a waiting job: what the leader has seen of it, for the worker that is about to write its admission.

One rule: pure. A brief tells everything that a worker reads of a waiting job but its spec, which it names by a digest:
templates may hold secrets, which stay in the cluster. A worker that has read a job of the same namespace with the same
spec knows the spec. A spec never serves for another namespace, whatever a brief says: who can write to Redis would read
the templates of others in pods of its own.

A brief may be outdated when the worker gets it. So it serves only for a write that the API server refuses if the job
has another resourceVersion by then.
"""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import orjson

from crds import labels
from crds.api_resources import TORCHJOBS
from crds.keys import JobKey
from crds.torchjob.size_limits import LargeObject

LONGEST = 4_096
"""The most bytes of a brief. A job whose brief is longer has none."""
LONGEST_SPEC = 16_384
"""The most bytes, as JSON, of a spec that a brief names and a worker remembers."""
REMEMBERED = 512
"""The most specs that a worker remembers."""


def write(manifest: Mapping[str, Any]) -> bytes:
    """Return the brief of a job; empty if the job has none."""
    metadata = manifest["metadata"]
    version = metadata.get("resourceVersion")
    digest = _digest(_text(manifest))
    if not digest or not version or "deletionTimestamp" in metadata:
        return b""
    brief = _encode(
        [
            digest,
            version,
            metadata.get("generation", 0),
            metadata.get("creationTimestamp"),
            _own(metadata.get("labels")),
            _own(metadata.get("annotations")),
            manifest.get("status"),
        ]
    )
    return brief if len(brief) <= LONGEST else b""


def read(brief: bytes, key: JobKey, specs: "KnownSpecs") -> dict[str, Any] | None:
    """Return the job of a brief; None if its spec is not known."""
    try:
        digest, version, generation, created, own_labels, annotations, status = orjson.loads(brief)
    except (TypeError, ValueError):
        return None  # from a leader of another version
    spec = specs.get(key.namespace, digest) if isinstance(digest, str) else None
    if spec is None:
        return None
    metadata = {
        "namespace": key.namespace,
        "name": key.name,
        "uid": key.uid,
        "resourceVersion": version,
        "generation": generation,
        "creationTimestamp": created,
        "labels": own_labels,
        "annotations": annotations,
    }
    job = {"apiVersion": TORCHJOBS.api_version, "kind": TORCHJOBS.kind, "metadata": metadata, "spec": spec}
    return job if status is None else {**job, "status": status}


class KnownSpecs:
    """The specs that a worker process has read last; safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._texts: OrderedDict[tuple[str, str], bytes] = OrderedDict()
        """The specs by namespace and digest. As texts they take no more memory than LONGEST_SPEC says."""

    def note(self, manifest: Mapping[str, Any]) -> None:
        """Remember the spec of a job."""
        text = _text(manifest)
        if text:
            name = manifest["metadata"]["namespace"], _digest(text)
            with self._lock:
                self._texts[name] = text
                self._texts.move_to_end(name)
                if len(self._texts) > REMEMBERED:
                    self._texts.popitem(last=False)

    def get(self, namespace: str, digest: str) -> dict[str, Any] | None:
        """Return the spec of a job of a namespace by its digest; None if it is not remembered."""
        with self._lock:
            text = self._texts.get((namespace, digest))
            if text is None:
                return None
            self._texts.move_to_end((namespace, digest))
        spec: dict[str, Any] = orjson.loads(text)
        return spec


def _text(manifest: Mapping[str, Any]) -> bytes:
    """Return the spec of a job as JSON; empty for one that is too long or no object."""
    spec = None if isinstance(manifest, LargeObject) else manifest.get("spec")
    try:
        text = _encode(spec) if isinstance(spec, dict) else b""
    except orjson.JSONEncodeError:  # nested too deeply
        return b""
    return text if len(text) <= LONGEST_SPEC else b""


def _encode(value: Any) -> bytes:
    """Return a value as JSON, to be kept. orjson's own text holds all the memory in which it was written: 4 KB at
    least for most texts, and up to ten times their size."""
    return bytes(memoryview(orjson.dumps(value)))


def _digest(text: bytes) -> str:
    return hashlib.blake2b(text, digest_size=16).hexdigest() if text else ""


def _own(texts: Mapping[str, str] | None) -> dict[str, str]:
    """Return the labels or annotations of torchq: a worker reads no others of a job."""
    return {name: text for name, text in (texts or {}).items() if name.startswith(labels.GROUP)}
