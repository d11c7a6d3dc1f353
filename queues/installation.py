"""The owner of a queue store.

One rule: a store belongs to one installation, which alone writes to it. A store without an owner belongs to the first
installation that rebuilds it.
"""

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Installation:
    """The coordinators and workers of one cluster that share one Lease."""

    cluster: str
    """The uid of the namespace kube-system, which no two clusters have in common."""
    lease_namespace: str
    """The namespace of the leader's Lease."""

    def __str__(self) -> str:
        """Return the name of this installation in messages."""
        return f"cluster {self.cluster}, Lease in namespace {self.lease_namespace}"

    def encode(self) -> str:
        """Return this installation as the store keeps it."""
        return json.dumps(asdict(self), separators=(",", ":"), sort_keys=True)


def name(owner: bytes) -> str:
    """Return the name of the installation in the text of an owner, for messages."""
    try:
        fields = json.loads(owner)
        return str(Installation(str(fields["cluster"]), str(fields["lease_namespace"])))
    except (KeyError, TypeError, ValueError):
        return "its name is not readable"


def foreign(owner: bytes, own: Installation | None) -> str:
    """Return why a store with this owner does not belong to one's own installation; empty if the store does, or if one
    of the two is not known. The result is the rest of a sentence that begins with the name of the server.
    """
    if not owner or own is None or owner == own.encode().encode():
        return ""
    return (
        f"belongs to another installation ({name(owner)}), and this one is {own}: give each a Redis database of its "
        "own, or, after a loss of etcd or a move, take this one over with `torchq redis adopt --yes`; nothing is "
        "admitted before"
    )
