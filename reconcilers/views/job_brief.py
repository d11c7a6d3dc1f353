"""The brief of a waiting job: what the leader has seen of it, for the worker that is about to write its admission.

One rule: pure. A brief tells everything that a worker reads of a waiting job but its spec, which it names by a digest:
templates may hold secrets, which stay in the cluster. A worker that has read a job with the same spec knows the spec.

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
    digest = "" if isinstance(manifest, LargeObject) else _digest(manifest.get("spec"))
    if not digest or not version or "deletionTimestamp" in metadata:
        return b""
    brief = orjson.dumps(
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
    except ValueError:
        return None  # from a leader of another version
    spec = specs.get(digest)
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
        self._specs: OrderedDict[str, Mapping[str, Any]] = OrderedDict()

    def note(self, manifest: Mapping[str, Any]) -> None:
        """Remember the spec of a job."""
        digest = "" if isinstance(manifest, LargeObject) else _digest(manifest.get("spec"))
        if digest:
            with self._lock:
                self._specs[digest] = manifest["spec"]
                self._specs.move_to_end(digest)
                if len(self._specs) > REMEMBERED:
                    self._specs.popitem(last=False)

    def get(self, digest: str) -> Mapping[str, Any] | None:
        """Return the spec with a digest; None if it is not remembered."""
        with self._lock:
            spec = self._specs.get(digest)
            if spec is not None:
                self._specs.move_to_end(digest)
            return spec


def _digest(spec: Any) -> str:
    """Return the digest of a spec; empty for one that is too long or no object."""
    try:
        text = orjson.dumps(spec) if isinstance(spec, dict) else b""
    except orjson.JSONEncodeError:  # nested too deeply
        return ""
    return hashlib.blake2b(text, digest_size=16).hexdigest() if 0 < len(text) <= LONGEST_SPEC else ""


def _own(texts: Mapping[str, str] | None) -> dict[str, str]:
    """Return the labels or annotations of torchq: a worker reads no others of a job."""
    return {name: text for name, text in (texts or {}).items() if name.startswith(labels.GROUP)}
