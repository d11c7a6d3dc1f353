"""What queues use of their quotas, and what jobs hold of the pool, as numbers for bars and as words.

One rule: pure. GPUs of all kinds are counted together; where no queue and no node has any, CPUs are counted.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any

from coordinator.dashboard.readings import Reading
from coordinator.query.questions import Document
from coordinator.wording.columns import status_of
from crds.holds import GPU
from crds.resources import quantities

CPU, MEMORY = "cpu", "memory"
GPUS, CPUS = "GPUs", "CPUs"
MOST_COUNTED = 8
_UNITS = {CPU: CPUS, MEMORY: "Memory"}


@dataclass(frozen=True, slots=True)
class Counted:
    """What the bars of queues count."""

    unit: str
    """GPUs or CPUs."""
    whole: float | None
    """What the pool has of them; None if the pool has no limit."""


@dataclass(frozen=True, slots=True)
class QueueUse:
    """What a queue uses."""

    used: float
    idle: float
    """The part that is idle growth."""
    quota: float | None
    text: str
    """What is used, of how much, for a cell."""
    sentence: str


@dataclass(frozen=True, slots=True)
class ResourceUse:
    """What is used of one resource of the pool."""

    name: str
    parts: Sequence[tuple[str, float]]
    whole: float
    text: str
    sentence: str


def room(reading: Reading) -> Counted:
    """Return what the bars count for all queues of a reading."""
    return reading.once("room", lambda: _room(reading))


def _room(reading: Reading) -> Counted:
    capacity = _capacity(reading)
    # Most pools have GPUs: then no queue has to be asked.
    named = chain(capacity, chain.from_iterable(map(_names, reading.queues)))
    unit = GPUS if any(name.endswith(GPU) for name in named) else CPUS
    whole = sum(_amount(most) for name, most in capacity.items() if _is_counted(name, unit)) if capacity else None
    return _counted(unit, whole)


@lru_cache(MOST_COUNTED)
def _counted(unit: str, whole: float | None) -> Counted:
    """Return the same object for the same values, as rows are compared with it."""
    return Counted(unit, whole)


def _is_counted(name: str, unit: str) -> bool:
    return name.endswith(GPU) if unit == GPUS else name == CPU


def _names(item: Document) -> Iterator[str]:
    """Yield the resources that a queue uses, and those that its quota limits."""
    return chain(_usage(item), _mapping(status_of(item).get("idleUsage")), _quota(item))


def counted(item: Document, room: Counted) -> QueueUse:
    """Return what a queue uses of what the bars count."""
    return of_queue(item, {name for name in _names(item) if _is_counted(name, room.unit)})


def of_queue(item: Document, names: Iterable[str]) -> QueueUse:
    """Return what a queue uses of some resources together."""
    names = [*names]
    usage, idle_usage, quota = _usage(item), status_of(item).get("idleUsage") or {}, _quota(item)
    used, idle = (sum(_amount(each.get(name)) for name in names) for each in (usage, idle_usage))
    limits = [_amount(quota[name]) for name in names if name in quota]
    limit = sum(limits) if limits else None
    text = f"{used:g}" if limit is None else f"{used:g} of {limit:g}"
    more = [f"{idle:g} of that by idle growth"] if idle else []
    beyond = used - idle - limit if limit is not None else 0.0
    more += [f"{min(beyond, used):g} beyond the quota"] if beyond > 0 else []
    quota_text = "used, without a quota" if limit is None else "used of the quota"
    return QueueUse(used, idle, limit, text, ", ".join([f"{text} {quota_text}", *more]))


def limited(item: Document) -> Sequence[str]:
    """Return the resources that the quota of a queue limits, GPUs first."""
    return sorted(_quota(item), key=lambda name: (not name.endswith(GPU), name))


def pool(reading: Reading, queues: Iterable[Document]) -> Sequence[ResourceUse]:
    """Return what is used of the pool: of each kind of GPU, of CPUs and of memory. `queues` have the idle growth."""
    capacity, used = _capacity(reading), (reading.upcoming.get("pool") or {}).get("used") or {}
    idle: dict[str, float] = {}
    for item in queues:
        for name, amount in (status_of(item).get("idleUsage") or {}).items():
            idle[name] = idle.get(name, 0.0) + _amount(amount)
    names = [*sorted(name for name in capacity if name.endswith(GPU)), *(each for each in _UNITS if each in capacity)]
    return [_pool_use(name, _amount(used.get(name)), idle.get(name, 0.0), _amount(capacity[name])) for name in names]


def _pool_use(name: str, used: float, idle: float, whole: float) -> ResourceUse:
    idle = min(idle, used)
    text = f"{_readable(name, used)} of {_readable(name, whole)}"
    title = _UNITS.get(name, name)
    more = f", {_readable(name, idle)} of that by idle growth" if idle else ""
    return ResourceUse(title, (("used", used - idle), ("idle", idle)), whole, text, f"{title}: {text} in use{more}")


def _readable(name: str, amount: float) -> str:
    """Return an amount for people: memory in GiB or TiB."""
    if name != MEMORY:
        return f"{amount:g}"
    power, unit = (40, "TiB") if amount >= 2**40 else (30, "GiB")
    return f"{amount / 2**power:.1f}".removesuffix(".0") + f" {unit}"


def _capacity(reading: Reading) -> Mapping[str, Any]:
    return _mapping((reading.upcoming.get("pool") or {}).get("capacity"))


def _usage(item: Document) -> Mapping[str, Any]:
    return _mapping(status_of(item).get("usage"))


def _quota(item: Document) -> Mapping[str, Any]:
    limits = _mapping(item["spec"].get("quota"))
    return {quantities.canonical(name): most for name, most in limits.items()}


def _mapping(value: object) -> Mapping[str, Any]:
    """Return amounts by name; none where an object has something else there."""
    return value if isinstance(value, (dict, Mapping)) else {}  # the first is by far the quicker question


def _amount(quantity: Any) -> float:
    """Return an amount as a number; 0 for none, and for one that nobody understands."""
    try:
        return float(quantities.exact(quantity)) if quantity is not None else 0.0
    except (ValueError, ArithmeticError, TypeError):
        return 0.0
