"""What `torchq queue show` says about one queue, and the queues of a list with their figures.

One rule: pure. Settings come from the TenantQueue, figures from a coordinator.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from coordinator.query.questions import Document, UnknownObject
from coordinator.wording import ages
from coordinator.wording.amounts import format_amounts
from coordinator.wording.queue_columns import queue_columns
from crds import tenantqueue
from crds.errors import InvalidObject, Problem
from kube.api import Manifest


def with_figures(
    objects: Sequence[Manifest], figures_by_name: Mapping[str, Document], names: Sequence[str] = ()
) -> list[Manifest]:
    """Return the queues of these names, or all, each with its newest figures in the status. Raises UnknownObject for a
    name that neither an object nor a figure has."""
    by_name = {item["metadata"]["name"]: item for item in objects}
    # A queue without an object exists as long as it has work.
    busy = {name for name, item in figures_by_name.items() if item["status"]["pending"] or item["status"]["admitted"]}
    listed = names or sorted(busy | by_name.keys())
    return [_join(name, by_name.get(name), figures_by_name.get(name)) for name in listed]


def _join(name: str, item: Manifest | None, figures: Document | None) -> Manifest:
    if item is not None and figures is not None:
        return item | {"status": {**(item.get("status") or {}), **figures["status"]}}
    either = item or figures
    if either is None:
        raise UnknownObject(f"there is no queue {name}")
    return either


def facts(item: Manifest, now: datetime) -> Iterator[tuple[str, object]]:
    """Yield the settings and the figures of a queue, each with its title."""
    spec, status = item["spec"], item.get("status") or {}
    yield from ((column.title.capitalize(), column.text(item)) for column in queue_columns(now))
    if status.get("idleUsage"):
        yield "Idle growth", format_amounts(status["idleUsage"]) + " of the usage"
    yield "Namespaces", ", ".join(spec.get("namespaces") or ()) or "any"
    yield "Aging", f"{spec.get('agingSeconds', 600)} s of waiting for one step of priority"
    yield "Waiting since", ages.duration(status.get("oldestWaitSeconds"))
    if listed := _gang_queues(spec):
        yield "Gang queues", listed


def notes(item: Manifest) -> list[str]:
    """Return a note about each limit of a queue that has no effect."""
    return [
        f"note: {problem.field}: {problem.message}; it has another effect than it says" for problem in ineffective(item)
    ]


def _gang_queues(spec: Manifest) -> str:
    """Return which queues of the gang scheduler the jobs of a queue may name; empty if no admin has said so."""
    listed, default = list(spec.get("gangQueues") or ()), spec.get("gangQueue") or ""
    if not listed:
        return f"any ({default} by default)" if default else ""
    return ", ".join(f"{each} (default)" if each == (default or listed[0]) else each for each in listed)


def ineffective(item: Manifest) -> tuple[Problem, ...]:
    """Return the limits of a queue, set under an earlier version, that have no effect."""
    spec = {name: item["spec"][name] for name in ("quota", "borrowingLimit", "cohort") if item["spec"].get(name)}
    try:
        queue = tenantqueue.read({"metadata": {"name": item["metadata"]["name"]}, "spec": spec})
    except InvalidObject as error:
        return error.problems
    return tuple(tenantqueue.ineffective(queue))
