"""The requests of a pod as a hashable value that its equals share.

One rule: pure, over opaque pod specs; a spec that cannot be read requests nothing.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import orjson

from crds.torchjob import demand, memory_growth

Requests = tuple[tuple[str, int], ...]
"""Requested amounts as a hashable value. Most pods of a job request the same amounts, which are stored once."""
LONGEST_CACHED = 4096
"""The largest JSON of requests, in bytes, whose result is cached."""
MOST_CONTAINERS = 16
"""The largest number of containers of a pod whose result is cached."""


def read(spec: Mapping[str, Any]) -> Requests:
    """Return the requests of a pod (`demand.pod_demand`). If the pod requests too many resources, the result has one
    more than a job can be charged for."""
    if sum(len(spec.get(name) or ()) for name in ("containers", "initContainers")) > MOST_CONTAINERS:
        return _compute_requests(spec)
    parts = {
        name: [demand.demand_fields(container) for container in spec.get(name) or ()]
        for name in ("containers", "initContainers")
    }
    text = orjson.dumps(parts | {"resources": spec.get("resources"), "overhead": spec.get("overhead")})
    return _parse_requests(text) if len(text) <= LONGEST_CACHED else _compute_requests(spec)


def main_memory(spec: Mapping[str, Any]) -> int:
    """Return the memory in bytes that the main container asks for, the larger of its request and its limit; else 0."""
    try:
        return memory_growth.declared(spec)
    except (ValueError, TypeError, AttributeError):
        return 0


@lru_cache(1024)
def _parse_requests(text: bytes) -> Requests:
    """Return the requests of a pod spec that is reduced to them. The result is cached: it is the same for all pods of a
    task at each of their changes."""
    return _compute_requests(orjson.loads(text))


def _compute_requests(spec: Mapping[str, Any]) -> Requests:
    try:
        amounts = demand.pod_demand(spec)
    except (ValueError, TypeError, AttributeError):  # the API server of today accepts no such spec
        return ()
    return tuple(sorted(amounts.items())[: demand.MOST_NAMES + 1])
