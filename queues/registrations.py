"""The registrations of workers, in a format that every later version can read.

One rule: a field may be added, but none is removed, renamed or given another meaning. So a leader can name the workers
of any version, and a worker can tell whose work it must not take.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import NamedTuple

import orjson

from queues import installation, redis_keys


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """The facts that a worker registers about itself."""

    worker: str
    threads: int
    """The number of its threads that take work. With 0 the worker is taken off the list, because it stops, unless its
    clock is wrong."""
    version: str = ""
    """The version of torchq; empty if it is not known."""
    layout: int = redis_keys.OWN_LAYOUT
    """The number of the layout of keys that the worker uses; 0 if it is not known."""
    owner: str = ""
    """The installation of the worker, as `torchq:owner` has it; empty if it is not known."""
    clock: str = ""
    """Why the clock of its machine cannot be trusted; empty if it can. Such a worker takes no work."""

    @property
    def is_listed(self) -> bool:
        """Whether the worker is kept on the list."""
        return self.threads > 0 or bool(self.clock)

    def text(self) -> str:
        """Return the JSON of the registration; the worker is not part of this JSON."""
        fields = {name: value for name, value in asdict(self).items() if name != "worker"}
        return orjson.dumps(fields, option=orjson.OPT_SORT_KEYS).decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A registration in the store."""

    registration: Registration
    until: float
    """When the registration ends, by the server's clock."""


class StoreIdentity(NamedTuple):
    """The facts about the store that a worker gets when it registers."""

    layout: int
    """The number of the layout of its keys; 0 for an empty store."""
    epoch: int
    """The epoch of the last rebuild; 0 if the store is lost."""
    owner: str
    """The installation that the store belongs to, as `torchq:owner` has it; empty if it is not known."""
    time: float = 0.0
    """The time by the clock of the store; 0 if it is not known."""


def parse_member(worker: str, text: bytes) -> Member:
    """Return the member of this name. Raises ValueError, KeyError, TypeError or AttributeError for an invalid text."""
    fields = orjson.loads(text)
    registration = Registration(
        worker=worker,
        threads=int(fields["threads"]),
        version=str(fields.get("version", "")),
        layout=int(fields["layout"]),
        owner=str(fields.get("owner", "")),
        clock=str(fields.get("clock", "")),
    )
    return Member(registration=registration, until=float(fields["until"]))


def find_refusal(own: Registration, store: StoreIdentity) -> str:
    """Return why a worker must not take batches of the store's leader; empty if the worker may take batches.

    An empty store refuses no worker: its owner is recorded by whoever fills it."""
    if store.layout not in (0, own.layout):
        return (
            f"this worker (torchq {own.version or 'of an unknown version'}) uses layout {own.layout} of the queues in "
            f"Redis, and the leader uses layout {store.layout}"
        )
    if store.owner and own.owner and store.owner != own.owner:
        others, ours = (installation.name(owner.encode()) for owner in (store.owner, own.owner))
        return f"Redis belongs to another installation ({others}), and this worker is of {ours}"
    return own.clock


def describe_refused(registrations: Iterable[Registration], store: StoreIdentity) -> tuple[str, ...]:
    """Return a sentence for each group of workers that take no batches of the store's leader: how many they are, of
    which version, and why. A worker with a wrong clock is named, so that its machine is found."""
    refused = [each for each in registrations if find_refusal(each, store)]
    late = [each for each in refused if each.clock]
    counts = Counter(
        (each.version, each.layout, each.owner if each.layout == store.layout else "")
        for each in refused
        if not each.clock
    )
    told = [f"worker {each.worker} takes no work: {each.clock.replace('this', 'its', 1)}" for each in late]
    return (*(_describe(count, *group, store) for group, count in sorted(counts.items())), *sorted(told))


def _describe(count: int, version: str, layout: int, owner: str, store: StoreIdentity) -> str:
    workers = f"{count} worker{'s' * (count > 1)} of {f'version {version}' if version else 'an unknown version'}"
    take = "takes no work" if count == 1 else "take no work"
    if owner:
        return f"{workers} {take}: of another installation ({installation.name(owner.encode())})"
    used = f"layout {layout}" if layout else "a layout before 10"
    return f"{workers} ({used}) {take}: the leader uses layout {store.layout}"
