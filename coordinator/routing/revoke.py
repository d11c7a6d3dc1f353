"""Which admissions have to be taken back, because there is not room for all that the cluster shows.

One rule: pure. What was lost with the store may have been given away twice; a rebuild takes back the newest admissions
of which no pod was made yet. What has a pod, or what the store has charged all along, keeps its room: a quota that was
lowered drains by itself.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from crds.keys import JobKey
from crds.resources import amounts
from crds.resources.amounts import NOTHING, Amounts
from queues import limits
from queues.values import QueueSpec, Reservation


@dataclass(frozen=True, slots=True)
class _Room:
    """Something that reservations take from."""

    limit: Amounts
    used: Counter[str] = field(default_factory=Counter)

    def short(self, charge: Amounts) -> bool:
        """Whether there is less of anything in this charge than is taken."""
        limits = ((name, amounts.most(self.limit, name)) for name, amount in charge.items() if amount > 0)
        return any(most is not None and self.used[name] > most for name, most in limits)


def excess(
    charged: Iterable[Reservation], firm: Collection[JobKey], queues: Mapping[str, QueueSpec], pool: Amounts | None
) -> frozenset[JobKey]:
    """The keys to be taken back, newest admission first, until queues, cohorts, pool and ports have room for the rest.

    `firm` are the keys that keep what they have, whatever becomes of the others.
    """
    charged = sorted(charged, key=lambda each: (each.epoch, each.pick, each.key), reverse=True)
    rooms = _Rooms(queues, pool)
    ports = Counter(each.port for each in charged if each.port)
    for each in charged:
        rooms.add(each, 1)
    back = set()
    for each in charged:
        if each.key not in firm and (rooms.short(each) or ports[each.port] > 1):
            rooms.add(each, -1)
            ports[each.port] -= 1
            back.add(each.key)
    return frozenset(back)


class _Rooms:
    """Every queue, every cohort and the pool."""

    def __init__(self, queues: Mapping[str, QueueSpec], pool: Amounts | None) -> None:
        self._queues = queues
        self._pool = _Room(NOTHING if pool is None else pool)
        self._own = {name: _Room(limits.own(spec)) for name, spec in queues.items()}
        self._cohorts = {name: _Room(total) for name, total in limits.totals(queues.values()).items()}

    def add(self, each: Reservation, times: int) -> None:
        for room, charge in self._of(each):
            for name, amount in charge.items():
                room.used[name] += times * amount

    def short(self, each: Reservation) -> bool:
        return any(room.short(charge) for room, charge in self._of(each))

    def _of(self, each: Reservation) -> Iterator[tuple[_Room, Amounts]]:
        """What it takes from where."""
        yield self._pool, each.charge
        spec = self._queues.get(each.queue)
        if spec is not None:
            yield self._own[spec.name], each.charge
            if spec.cohort:
                yield self._cohorts[spec.cohort], {n: amount for n, amount in each.charge.items() if n in spec.quota}
