"""What sights of TenantQueues and of the pool say about the rows of the history: weights and amounts from a time on.

One rule: a row is a beginning, not a sample. It is written when a weight or the pool has changed.
"""

from collections.abc import Mapping
from typing import Any

from crds import integers
from crds.resources.amounts import Amounts
from crds.tenantqueue import MAX_WEIGHT
from history.rows import PoolRow, QueueRow
from history.sightings import untrusted
from history.sightings.untrusted import mapping, moment, text


def trim_queue(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a TenantQueue that its row needs. It is the same before and after a write of the status, but
    for the resourceVersion."""
    metadata = untrusted.trim_metadata(manifest, ())
    return {"metadata": metadata, "spec": {"weight": mapping(manifest.get("spec")).get("weight")}}


def of_queue(queue: Mapping[str, Any], seen: int, deleted: bool = False) -> QueueRow:
    """Return the row of a TenantQueue whose weight was seen for the first time, or that was deleted."""
    metadata = mapping(queue.get("metadata"))
    created, gone = moment(metadata.get("creationTimestamp")), moment(metadata.get("deletionTimestamp"))
    start = seen
    if deleted:
        start = seen if gone is None else gone
    elif metadata.get("generation") == 1 and created is not None:
        start = created  # no other weight was valid before
    return QueueRow(
        name=text(metadata.get("name")),
        start=start,
        version=integers.parse(metadata.get("resourceVersion"), 0),
        weight=0 if deleted else _weight(mapping(queue.get("spec")).get("weight")),
    )


def of_pool(amounts: Amounts, seen: int) -> PoolRow:
    """Return the row of a pool whose amounts were seen for the first time; nothing if it has no limits."""
    return PoolRow(start=seen, amounts=untrusted.amounts(amounts))


def _weight(value: object) -> int:
    """Return the weight of a queue, 1 if none is given; torchq reads a wrong one as the default, too."""
    is_weight = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_WEIGHT
    return int(value) if is_weight else 1  # type: ignore[call-overload]
