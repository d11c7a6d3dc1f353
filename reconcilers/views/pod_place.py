"""The place of a pod in a static world: its rank, the number of pods with ranks, and the name of their rendezvous; and
the host file of a pod.

One rule: pure, over annotations. A container reads them through the downward API whenever it starts, so a restart in
place begins with the annotations that were written before the restart.
"""

import hashlib
import sys
from collections.abc import Mapping

from crds import integers, labels

NAMES = (labels.RANK, labels.WORLD_SIZE, labels.RENDEZVOUS_ID)


def read(annotations: Mapping[str, str]) -> str:
    """Return a place as text, which no two pods share; empty without a rank."""
    return " ".join(annotations.get(name, "") for name in NAMES) if labels.RANK in annotations else ""


def rank(place: str) -> int | None:
    """Return the rank in a place; None without a rank."""
    number = integers.parse(place.partition(" ")[0], -1)
    return number if number >= 0 else None


def changes(before: str, annotations: Mapping[str, str]) -> Mapping[str, str]:
    """Return those annotations of a place that differ from those of the previous place."""
    known = dict(zip(NAMES, before.split(" "), strict=True)) if before else {}
    return {name: value for name, value in annotations.items() if known.get(name) != value}


def hosts_digest(annotations: Mapping[str, str]) -> str:
    """Return the digest of a pod's host file; empty if the pod has none. The file of a large world is too large for a
    view. A pod may have its script before its list, and then its file is empty."""
    if not annotations.keys() & {labels.HOSTS, labels.DISCOVER_HOSTS}:
        return ""
    return sys.intern(hashlib.blake2b(annotations.get(labels.HOSTS, "").encode(), digest_size=8).hexdigest())
