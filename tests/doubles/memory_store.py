"""The queue store in memory, for tests: the twin of `queues.storage.redis_store`.

One rule: this store does everything that Redis does (JSON, versions, epochs, ports), so that a test of this store is a
test of both.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from crds.keys import JobKey
from crds.resources import amounts
from crds.resources.amounts import Amounts
from queues import errors, limits, order
from queues.inspection_values import StoreInspection
from queues.installation import Installation, foreign
from queues.placement import pod_nodes
from queues.redis import codec
from queues.store import IdleGrowth, LoweredCharge, PendingCommit, StoreSettings
from queues.values import (
    NO_ACCOUNTS,
    Batch,
    CommitResult,
    Entry,
    NextEntries,
    Pick,
    QueuePosition,
    QueueSpec,
    Refusal,
    Reservation,
    Settlement,
    Snapshot,
    WaitingEntry,
)
from tests.doubles.memory_content import Content, Last, find_exceeded
from tests.doubles.sync_commit import SyncCommit

CHANGES_PER_EPOCH = 2**32
"""A rebuild numbers changes from its epoch times this number, so that no number is used twice."""


class MemoryStore:
    """A QueueStore in one process; safe to share between threads."""

    def __init__(
        self,
        mark: Callable[[JobKey, str], None],
        settings: StoreSettings | None = None,
        content: Content | None = None,
        may_have_pods: Callable[[JobKey, int, bool], bool] = lambda *_: False,
    ) -> None:
        """`mark(key, tenant)` marks a committed key as work (`MemoryWork.mark`). `may_have_pods(key, pods_version,
        frees)` returns whether a charge must stay (`MemoryWork.may_have_pods`)."""
        self._mark = mark
        self._settings = settings or StoreSettings()
        self._content = Content() if content is None else content
        self._may_have_pods = may_have_pods
        self._epoch = 0
        self._installation: Installation | None = None
        self._touched: set[str] = set()

    def epoch(self) -> int:
        """See QueueStore."""
        return self._content.epoch

    def incarnation(self) -> str:
        """See QueueStore."""
        return self._content.incarnation

    def seconds_since_move(self) -> float:
        """See QueueStore."""
        return self._content.seconds_since_move

    def problem(self) -> str:
        """See QueueStore."""
        return self._content.problem or self._foreign()

    def claim(self, installation: Installation) -> None:
        """See QueueStore."""
        self._installation = installation

    def _foreign(self) -> str:
        owner = self._content.owner
        return "" if owner is None else foreign(owner.encode().encode(), self._installation)

    def _check_owner(self) -> None:
        if reason := self._foreign():
            raise errors.ForeignStore(reason)
        self._content.owner = self._installation or self._content.owner

    def prepare(self, epoch: int, entries: Iterable[Entry]) -> None:
        """See QueueStore. In memory, an empty store is all that can be prepared."""
        list(entries)
        self._check_owner()
        self.forget(epoch - 1)
        self._content.rebuilding = epoch

    def rebuild(self, epoch: int, reservations: Iterable[Reservation], entries: Iterable[Entry]) -> None:
        """See QueueStore."""
        charged, waiting = list(reservations), list(entries)
        for reservation in charged:
            codec.check(reservation)
        for entry in waiting:
            codec.check(entry)
        content = self._content
        with content.lock:
            self._check_owner()
            if epoch <= content.epoch or epoch < content.rebuilding:
                newest = max(content.epoch, content.rebuilding)
                raise errors.StaleEpoch(f"cannot rebuild under epoch {epoch}: the queues are at {newest}")
            content.entries, content.reservations, content.usage, content.pool_usage = {}, {}, {}, {}
            content.members = {}
            for reservation in charged:
                self._reserve(reservation)
            for entry in _latest(waiting):
                self._put(entry)
            content.epoch = self._epoch = epoch
            content.rebuilding = 0
            content.change = content.settled = epoch * CHANGES_PER_EPOCH
            content.changed, self._touched, content.last = {}, set(), Last()
            content.last_port = max([content.last_port, *(reservation.port for reservation in charged)])

    def configure(self, queues: Collection[QueueSpec], pool: Amounts | None) -> None:
        """See QueueStore."""
        content = self._content
        specs = {spec.name: codec.decode_spec(codec.encode_spec(spec)) for spec in queues}
        pool = codec.decode_amounts(codec.encode_amounts(pool))
        with content.lock:
            self._guard()
            names = limits.usage_resources(queues, pool, self._settings.counted)
            if (specs, pool, names) == (content.specs, content.pool, content.counted) and content.revision:
                return
            content.specs, content.pool = specs, pool
            if names != content.counted:
                content.count(names)
            content.overtaken = {name: job for name, job in content.overtaken.items() if name in specs}
            content.revision += 1
            content.change += 1
            content.settled = content.change

    def put(self, entries: Iterable[Entry]) -> None:
        """See QueueStore."""
        with self._content.lock:
            self._guard()
            accepted = list(_latest(entries))
            for entry in accepted:
                codec.check(entry)
            for entry in accepted:
                self._put(entry)
            self._number_change()

    def remove(self, keys: Iterable[JobKey], pods_version: int | None = None) -> list[JobKey]:
        """See QueueStore."""
        retained = []
        with self._content.lock:
            self._guard()
            for key in keys:
                self._forget_entry(key)
                if (
                    pods_version is not None
                    and key in self._content.reservations
                    and self._may_have_pods(key, pods_version, True)
                ):
                    retained.append(key)
                else:
                    self._release(key)
            self._number_change()
        return retained

    def withdraw(self, keys: Iterable[JobKey]) -> None:
        """See QueueStore."""
        with self._content.lock:
            self._guard()
            for key in keys:
                waiting = self._content.entries.get(key)
                if waiting is not None and waiting.entry.kind == "grow":
                    self._forget_entry(key)
            self._number_change()

    def lower(self, charges: Iterable[LoweredCharge], pods_version: int | None = None) -> list[JobKey]:
        """See QueueStore."""
        retained = []
        with self._content.lock:
            self._guard()
            for lowered in charges:
                held = self._content.reservations.get(lowered.key)
                if held is None or (held.attempt, held.grown) != (lowered.attempt, lowered.grown):
                    continue
                if pods_version is not None and self._may_have_pods(lowered.key, pods_version, False):
                    retained.append(lowered.key)
                else:
                    self._lower(held, lowered)
            self._number_change()
        return retained

    def _lower(self, held: Reservation, lowered: LoweredCharge) -> None:
        charge = {
            name: min(amount, lowered.charge[name]) for name, amount in held.charge.items() if name in lowered.charge
        }
        size = min(held.size, lowered.size)
        kept = replace(held, charge=charge, size=size, idle=max(0, held.idle - (held.size - size)))
        if kept != held:
            self._release(held.key)
            self._reserve(replace(kept, paid=0, gained=0, nodes=""))
            waiting = self._content.entries.get(held.key)
            if waiting is not None and waiting.entry.idle > kept.idle:
                self._forget_entry(held.key)

    def grow_idle(self, growths: Iterable[IdleGrowth], epoch: int, revision: int) -> list[Refusal]:
        """See QueueStore."""
        refusals: list[Refusal] = []
        grown = []
        with self._content.lock:
            self._guard(epoch)
            for growth in growths:
                refusals.append(self._grow_idle(growth) if revision == self._content.revision else "revision")
                grown += [] if refusals[-1] else [self._content.reservations[growth.key]]
            self._number_change()
        for held in grown:
            self._mark(held.key, held.queue)
        return refusals

    def _grow_idle(self, growth: IdleGrowth) -> Refusal:
        held = self._content.reservations.get(growth.key)
        if held is None or (held.attempt, held.grown) != (growth.attempt, growth.grown):
            return "reservation"
        if growth.key in self._content.entries:
            return "entry"
        over = self._limit_without_room(held.queue, growth.charge)
        if not over:
            self._release(held.key)
            charge = amounts.add(held.charge, growth.charge)
            size, idle = held.size + growth.workers, held.idle + growth.workers
            self._reserve(replace(held, charge=charge, size=size, idle=idle, grown=held.grown + 1, paid=0, gained=0))
        return over

    def snapshot(
        self,
        heads: int,
        since: int | None = None,
        more: Collection[str] = (),
        known_heads: Mapping[str, int] | None = None,
    ) -> Snapshot:
        """See QueueStore."""
        content = self._content
        with content.lock:
            self._guard()
            whole = since is None or not content.settled <= since <= content.change
            changed = {name for name, number in content.changed.items() if since is None or number > since}
            complete = content.specs.keys() if whole else content.specs.keys() & (changed | set(more))
            after = {
                name: count for name, count in (known_heads or {}).items() if name in content.specs.keys() - complete
            }
            names = complete | after.keys()
            lines = content.lines(names)
            return Snapshot(
                epoch=content.epoch,
                revision=content.revision,
                pool=content.pool,
                pool_usage=dict(content.pool_usage),
                clock=content.clock,
                queues=tuple(content.view(name, lines[name], heads, after.get(name, 0)) for name in sorted(names)),
                change=content.change,
                whole=whole,
                departed=content.accounts_of_removed_queues() if whole else NO_ACCOUNTS,
            )

    def find_others(self, queue: str, after: int, known: Collection[Amounts], looked_at: int, most: int) -> NextEntries:
        """See QueueStore."""
        with self._content.lock:
            self._guard()
            line = self._content.lines([queue])[queue]
        others = [
            (rank, waiting)
            for rank, waiting in enumerate(line[after : after + looked_at], after + 1)
            if dict(waiting.demand) not in [dict(demand) for demand in known]
        ][:most]
        end = others[-1][0] if len(others) == most else max(after, min(after + looked_at, len(line)))
        return NextEntries(queue, end, len(line), tuple(waiting for _, waiting in others))

    def _commit(self, batch: Batch, name: str) -> CommitResult:
        content = self._content
        with content.lock:
            self._guard(batch.epoch)
            before, last = content.change, content.last
            if batch.follows and (last.name != batch.follows or not last.whole):
                return CommitResult((), "predecessor", before)
            last_known = last.change if batch.follows else batch.change
            others = [queue for queue, number in content.changed.items() if number > last_known >= content.settled]
            reservations, refused = self._take_picks(batch)
            if batch.settlement is not None and not refused:
                self._settle(batch.settlement)
            self._number_change()
            change, next_entries = content.change, () if refused else content.next_entries(batch)
            content.last = Last(name, not refused, change)
        for reservation in reservations:
            self._mark(reservation.key, reservation.queue)
        return CommitResult(
            tuple(reservations),
            refused,
            change,
            before == last_known,
            tuple(sorted(others)),
            next_entries,
            len(reservations),
        )

    def pending_commit(self, batch: Batch) -> PendingCommit:
        """See QueueStore."""
        return SyncCommit(self._commit, batch)

    def _take_picks(self, batch: Batch) -> tuple[list[Reservation], Refusal]:
        reservations: list[Reservation] = []
        if batch.revision != self._content.revision:
            return reservations, "revision"
        for pick in batch.picks:
            refused = self._refusal(pick)
            if refused:
                return reservations, refused
            reservations.append(self._take(batch.epoch, pick))
        return reservations, ""

    def raise_charge(self, key: JobKey, attempt: int, charge: Amounts) -> Refusal:
        """Raise the charge of a job for `MemoryWork.raise_charge`, which has checked the token."""
        content = self._content
        with content.lock:
            self._guard()
            reservation = content.reservations.get(key)
            if reservation is None or reservation.attempt != attempt:
                return "reservation"
            more = {name: amount for name, amount in amounts.subtract(charge, reservation.charge).items() if amount > 0}
            over = self._limit_without_room(reservation.queue, more)
            if more and not over:
                self._release(key)
                self._reserve(replace(reservation, charge=amounts.add(reservation.charge, more)))
                self._number_change()
            return over

    def place(self, key: JobKey) -> QueuePosition | None:
        """See QueueStore."""
        content = self._content
        with content.lock:
            self._guard()
            waiting = content.entries.get(key)
            if waiting is None:
                return None
            aging = content.specs.get(waiting.entry.queue, QueueSpec(name=waiting.entry.queue)).aging_seconds
            line = [entry.entry for entry in content.entries.values() if entry.entry.queue == waiting.entry.queue]
            position = content.place(waiting.entry, aging)
            rank = sum(content.place(entry, aging) < position for entry in line)
            return QueuePosition(entry=waiting.entry, rank=rank, waiting=len(line))

    def reservations(self, keys: Sequence[JobKey] | None = None) -> dict[JobKey, Reservation]:
        """See QueueStore."""
        with self._content.lock:
            self._guard()
            reservations = self._content.reservations
            return {
                key: reservations[key]
                for key in sorted(reservations if keys is None else reservations.keys() & set(keys))
            }

    def all_reservations(self) -> dict[JobKey, Reservation]:
        """See QueueStore."""
        with self._content.lock:
            self._guard(self._content.epoch)
            return dict(self._content.reservations)

    def inspect(self) -> StoreInspection:
        """See QueueStore."""
        content = self._content
        with content.lock:
            return StoreInspection(
                epoch=content.epoch,
                specs=dict(content.specs),
                pool=content.pool,
                entries={key: waiting.entry for key, waiting in content.entries.items()},
                places=content.places(),
                reservations=dict(content.reservations),
                usage={name: dict(used) for name, used in content.usage.items()},
                pool_usage=dict(content.pool_usage),
                counted=content.counted,
                ports={reservation.port: key for key, reservation in content.reservations.items() if reservation.port},
            )

    def forget(self, epoch: int) -> None:
        """See QueueStore."""
        content = self._content
        with content.lock:
            if content.epoch > epoch:
                raise errors.StaleEpoch(f"epoch {epoch} is over: the queues are at {content.epoch}")
            content.entries, content.reservations, content.usage, content.pool_usage = {}, {}, {}, {}
            content.members = {}
            content.epoch = 0

    def _guard(self, epoch: int = 0) -> None:
        current, own_epoch = self._content.epoch, epoch or self._epoch
        if not current or own_epoch > current:
            raise errors.StoreLost("no epoch: the queues must be rebuilt first")
        if own_epoch and own_epoch < current:
            raise errors.StaleEpoch(f"epoch {own_epoch} is over: the queues are at {current}")

    def _put(self, entry: Entry) -> None:
        content, first_member = self._content, order.member(entry)
        entry = codec.decode_entry(codec.encode_entry(entry))
        previous = content.entries.get(entry.key)
        if not self._counts(entry) or (previous and previous.entry == entry):
            return
        member = content.members.get(entry.key, first_member)
        self._forget_entry(entry.key)
        content.members[entry.key] = member
        content.version += 1
        content.entries[entry.key] = WaitingEntry(entry, content.version)
        self._touched.add(entry.queue)

    def _counts(self, entry: Entry) -> bool:
        """Return whether the kind of an entry matches the reservation of its job. A growth must also match the queue,
        the number of growths and the idle workers.
        """
        held = self._content.reservations.get(entry.key)
        if entry.kind != "grow":
            return held is None
        is_same = held is not None and (held.queue, held.grown) == (entry.queue, entry.grown)
        return is_same and held is not None and held.idle >= entry.idle

    def _forget_entry(self, key: JobKey) -> None:
        waiting = self._content.entries.pop(key, None)
        self._content.members.pop(key, None)
        if waiting is not None:
            self._touched.add(waiting.entry.queue)

    def _number_change(self) -> None:
        """Give a number to the change of all touched queues. Do nothing if no queue was touched."""
        content = self._content
        if self._touched:
            content.change += 1
            content.changed |= dict.fromkeys(self._touched, content.change)
            self._touched = set()

    def _refusal(self, pick: Pick) -> Refusal:
        content, entry = self._content, pick.waiting.entry
        current = content.entries.get(entry.key)
        if current is None or current.version != pick.waiting.version:
            return "entry"
        if not self._counts(entry):
            return "reservation"
        over = self._limit_without_room(entry.queue, pick.charge)
        if over:
            return over
        return "port" if entry.kind == "admit" and self._next_port(entry) is None else ""

    def _limit_without_room(self, queue: str, demand: Amounts) -> Refusal:
        """Return the limit that has no room for a demand in a queue; empty if every limit has room."""
        content = self._content
        spec = content.specs.get(queue, QueueSpec(name=queue))
        over = find_exceeded(demand, spec, content.specs.values(), content.usage)
        if over:
            return over
        return "" if content.pool is None or amounts.fits(demand, content.pool_usage, content.pool) else "pool"

    def _take(self, epoch: int, pick: Pick) -> Reservation:
        content, entry = self._content, pick.waiting.entry
        self._forget_entry(entry.key)
        self._settle(Settlement(pick.clock, pick.accounts, pick.overtaken))
        if entry.kind == "grow":
            return self._grow(pick)
        port = self._next_port(entry) or 0
        content.last_port = port or content.last_port
        content.picked += 1
        reservation = Reservation(
            key=entry.key,
            queue=entry.queue,
            attempt=entry.attempt,
            epoch=epoch,
            charge=pick.charge,
            pick=content.picked,
            port=port,
            size=pick.size,
            paid=pick.cost,
            nodes=pick.nodes,
        )
        return self._reserve(reservation)

    def _settle(self, changed: Settlement) -> None:
        content = self._content
        self._touched |= changed.accounts.keys() | changed.overtaken.keys()
        if changed.clock is not None:
            content.clock = codec.decode_clock(codec.encode_clock(changed.clock))
        for name, account in changed.accounts.items():
            if account.weight:
                content.accounts[name] = account
            else:
                content.accounts.pop(name, None)
        for queue, job in changed.overtaken.items():
            content.overtaken[queue] = codec.decode_overtaken(codec.encode_overtaken(job))

    def _grow(self, pick: Pick) -> Reservation:
        held = self._content.reservations[pick.waiting.entry.key]
        self._release(held.key)
        charge, idle = amounts.add(held.charge, pick.charge), held.idle - pick.waiting.entry.idle
        paid = replace(held, grown=held.grown + 1, paid=pick.cost, gained=pick.size)
        nodes = pod_nodes.extend(held.nodes, pick.nodes)
        return self._reserve(replace(paid, charge=charge, size=held.size + pick.size, idle=idle, nodes=nodes))

    def _reserve(self, reservation: Reservation) -> Reservation:
        content, key, queue = self._content, reservation.key, reservation.queue
        reservation = codec.decode_reservation(key, codec.encode_reservation(reservation))
        if key not in content.reservations:
            content.reservations[key] = reservation
            self._touched.add(queue)
            content.charge(reservation, 1)
        return reservation

    def _release(self, key: JobKey) -> None:
        content = self._content
        reservation = content.reservations.pop(key, None)
        if reservation is not None:
            self._touched.add(reservation.queue)
            content.charge(reservation, -1)

    def _next_port(self, entry: Entry) -> int | None:
        """Return the first free port after the last port; 0 if the job or the settings need no port, None if no port is
        free.
        """
        if self._settings.ports is None or not entry.port:
            return 0
        first, last = self._settings.ports
        used = {reservation.port for reservation in self._content.reservations.values()}
        after = range(max(first, self._content.last_port + 1), last + 1)
        return next((port for port in (*after, *range(first, last + 1)) if port not in used), None)


def _latest(entries: Iterable[Entry]) -> Iterable[Entry]:
    """Return the last entry of each job."""
    return {entry.key: entry for entry in entries}.values()
