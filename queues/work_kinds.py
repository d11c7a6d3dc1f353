"""The kinds of runs: what frees room goes before what takes room, and both before what only tells.

One rule: no kind is left out. Of EIGHT keys in a row that are dispatched, each kind gets its part if so many wait.
"""

from typing import Literal

WorkKind = Literal["ends", "begins", "tells"]
"""What the run of a key is for, the most urgent first:

    ends     it gives room back: the job has ended, is suspended, or goes back to its queue
    begins   it uses room: a pick or a growth is to be written, pods are to be made
    tells    it only writes how the job is

Of the offers of a key that waits, the most urgent counts.
"""
KINDS: tuple[WorkKind, ...] = ("ends", "begins", "tells")
"""All kinds, the most urgent first."""
TURNS: tuple[WorkKind, ...] = ("ends", "begins", "ends", "ends", "begins", "ends", "tells", "ends")
"""The kind that goes first with each of eight keys in a row. Where no such key waits, the most urgent goes."""
EIGHT = len(TURNS)


def lane(tenant: str, kind: WorkKind) -> str:
    """Return the name under which a tenant's ready keys of a kind wait. No tenant has a colon in its name."""
    return tenant if kind == "begins" else f"{kind}:{tenant}"


def parse(text: object) -> WorkKind:
    """Return the kind that a record names. A record that names none is of a version without kinds, or of a pick."""
    return next((kind for kind in KINDS if kind == text), "begins")


def more_urgent(kind: WorkKind, other: WorkKind) -> WorkKind:
    """Return the more urgent of two kinds."""
    return min(kind, other, key=KINDS.index)
