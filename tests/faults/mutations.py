"""Ways to break the product that the schedules must notice.

One rule: each takes away one thing that the design asks for, and nothing else.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from coordinator import census, route
from coordinator.term import Term
from coordinator.watch import Watches
from queues.memory_store import MemoryStore
from queues.memory_work import MemoryWork
from reconcilers import lifecycle
from reconcilers.apply import Application
from tests.faults.world import World

Mutation = tuple[Any, str, Callable[..., Any]]
_real = {
    "take": census.take,
    "charge": census.charge,
    "remove": MemoryStore.remove,
    "pods_of": Watches.pods_of,
    "finish": MemoryWork.finish,
    "granted": lifecycle.granted,
    "route": route.route,
    "holds": MemoryWork.holds,
    "begin": MemoryWork.begin,
}


def _remove_at_once(store: MemoryStore, keys: Any, seen: int | None = None) -> Any:  # noqa: ARG001
    return _real["remove"](store, keys)


def _nothing_occupies(watches: Watches, key: Any, seen: int) -> Any:
    return replace(_real["pods_of"](watches, key, seen), occupy=False)


def _finish_early(work: MemoryWork, key: Any, token: str, **how: Any) -> None:
    record = work._held(key, token)
    if record is not None:
        record.dirty = False
    _real["finish"](work, key, token, **how)


def _holds_in_any_epoch(work: MemoryWork, key: Any, token: str) -> bool:
    return work._held(key, token) is not None


def _forgetful_census(jobs: Any, pods: Any, held: Any) -> Any:  # noqa: ARG001
    return _real["take"](jobs, pods, {})


def _podless_census(jobs: Any, pods: Any, held: Any) -> Any:  # noqa: ARG001
    return _real["take"](jobs, [], held)


def _no_begin_fence(work: MemoryWork, leases: Any) -> Any:
    found = [(key, work._records[key].token) for key, _ in leases if key in work._records]
    return _real["begin"](work, [(key, token) for key, token in found if token])


MUTATIONS: dict[str, Mutation] = {
    "no fence before pods are made": (Application, "_fence", lambda _: None),
    "no epoch in the fence": (MemoryWork, "holds", _holds_in_any_epoch),
    "no wait for leases in a rebuild": (World, "sleep", lambda *_: None),
    "charges freed while pods occupy": (Watches, "pods_of", _nothing_occupies),
    "charges freed while a worker is at the job": (MemoryStore, "remove", _remove_at_once),
    "commit does not mark the key as work": (MemoryStore, "_mark_taken", lambda *_: None),
    "an offer during a run is forgotten": (MemoryWork, "finish", _finish_early),
    "a rebuild forgets what was picked": (census, "take", _forgetful_census),
    "a rebuild does not look at pods": (census, "take", _podless_census),
    "pods of another attempt stay": (lifecycle, "foreign", lambda *_: ()),
    "status is written whatever has changed": (Application, "_write", None),  # type: ignore[dict-item]
    "leases that end are not noticed": (MemoryWork, "_wake", lambda *_: None),
}


@contextmanager
def mutated(name: str) -> Iterator[None]:
    """The product with one thing missing."""
    where, what, instead = MUTATIONS[name]
    with patch.object(where, what, instead):
        yield
