"""Builders for the values of the queues package, and the loop that makes picks."""

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import replace

from crds.keys import JobKey
from crds.resources import amounts
from crds.resources.amounts import Amounts
from queues.picking.picker import Picker
from queues.registrations import Registration
from queues.rules import Patience, PickRules
from queues.store import QueueStore
from queues.values import Batch, CommitResult, Entry, Kind, QueueSpec, Reservation, Snapshot
from tests.doubles.memory_store import MemoryStore
from tests.support.clock import START

GPU = "nvidia.com/gpu"


def key(name: str, namespace: str = "team") -> JobKey:
    """Return the key of a job."""
    return JobKey(namespace, name, f"uid-{namespace}-{name}")


def entry(
    name: str,
    queue: str = "a",
    submitted: float = START,
    priority: int = 0,
    kind: Kind = "admit",
    attempt: int = 1,
    namespace: str = "team",
    port: bool = True,
    **demand: int,
) -> Entry:
    """Return a waiting job. The job takes a port if the store has ports. The keyword `gpu` stands for the resource
    GPU.
    """
    return Entry(
        key=key(name, namespace),
        queue=queue,
        kind=kind,
        submitted=submitted,
        priority=priority,
        attempt=attempt,
        port=port,
        demand=({} if kind == "grow" else {amounts.JOBS: 1}) | resources(**demand),
    )


def entries(queue: str, count: int, **demand: int) -> list[Entry]:
    """Return jobs of one queue, submitted one per second."""
    return [entry(f"{queue}-{number:04}", queue, START + number, **demand) for number in range(count)]


def further(waiting: Entry, most: int, step: int = 1, size: int = 1, grown: int = 0, **unit: int) -> Entry:
    """Return a waiting job with `size` workers that can use up to `most` further workers. `unit` is what each further
    worker needs.
    """
    return replace(waiting, size=size, unit=resources(**unit), most=most, step=step, grown=grown)


def reservation(
    name: str,
    queue: str = "a",
    attempt: int = 1,
    epoch: int = 1,
    port: int = 0,
    pick: int = 0,
    paid: int = 0,
    **charge: int,
) -> Reservation:
    """Return the reservation of an admitted job."""
    taken = {amounts.JOBS: 1} | resources(**charge)
    held = Reservation(key=key(name), queue=queue, attempt=attempt, epoch=epoch, charge=taken, port=port, pick=pick)
    return replace(held, paid=paid)


def registration(name: str, threads: int) -> Registration:
    """Return the registration of a worker of this layout."""
    return Registration(worker=name, threads=threads)


def resources(**demand: int) -> dict[str, int]:
    """Return amounts by resource; the keyword `gpu` stands for the resource GPU."""
    return {GPU if name == "gpu" else name: amount for name, amount in demand.items()}


def spec(name: str, weight: int = 1, **quota: int) -> QueueSpec:
    """Return a tenant queue."""
    return QueueSpec(name=name, weight=weight, quota=resources(**quota))


def specs(**weights: int) -> list[QueueSpec]:
    """Return tenant queues without quotas."""
    return [spec(name, weight) for name, weight in weights.items()]


def opened(
    queues: Sequence[QueueSpec],
    waiting: Sequence[Entry] = (),
    pool: Amounts | None = None,
    held: Sequence[Reservation] = (),
) -> MemoryStore:
    """Return a store in memory with these queues, entries and reservations. No worker learns of admitted jobs."""
    store = MemoryStore(lambda *_: None)
    store.rebuild(1, held, waiting)
    store.configure(queues, pool)
    return store


def choose(
    snapshot: Snapshot, now: float, limit: int, rules: PickRules | str, patience: Patience | None = None
) -> Batch:
    """Return the picks that one snapshot allows. `rules` may be just the name of the cost. Without `patience`, jobs
    that the pool has no room for have the least patience, and the patience of other jobs does not end.
    """
    known = PickRules(cost=rules) if isinstance(rules, str) else rules
    picker = Picker(snapshot, known)
    picker.patience = patience or Patience(known.least_patience)
    return picker.picks(now, limit)


def commit(store: QueueStore, batch: Batch) -> CommitResult:
    """Commit a batch, and return everything that the store answers."""
    pending = store.pending_commit(batch)
    pending.begin(batch.change)
    return replace(pending.outcome(), reservations=pending.reservations(), next_entries=pending.next_entries())


def run(
    store: QueueStore, picks: int, batch: int = 1, cost: str = amounts.JOBS, now: float = START, heads: int = 8
) -> Iterator[Reservation]:
    """Yield the reservations of admitted jobs in order, until there are `picks` reservations or no job can start."""
    count = 0
    while count < picks:
        taken = commit(store, choose(store.snapshot(heads), now, min(batch, picks - count), cost)).reservations
        if not taken:
            return
        count += len(taken)
        yield from taken


def order(reservations: Iterable[Reservation]) -> str:
    """Return the names of the reservations' queues, joined into one string."""
    return "".join(each.queue for each in reservations)


def used(reservations: Iterable[Reservation], names: Container[str] | None = None) -> dict[str, dict[str, int]]:
    """Return how much of these resources each queue uses, summed up from the reservations.

    `names` None means all resources. The usage of the pool has the empty name.
    """
    total: dict[str, Amounts] = {"": {}}
    for each in reservations:
        for name in ("", each.queue):
            total[name] = amounts.add(total.get(name, {}), amounts.select(each.charge, names))
    return {name: {resource: amount for resource, amount in use.items() if amount} for name, use in total.items()}


def usage(snapshot: Snapshot) -> dict[str, dict[str, int]]:
    """Return the usage that the store reports, in the form of `used`, without queues that use nothing."""
    queues = {view.spec.name: dict(view.usage) for view in snapshot.queues if view.usage}
    return {"": dict(snapshot.pool_usage)} | queues
