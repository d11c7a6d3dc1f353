"""The choice of growths and admissions that a rebuild revokes, because there is not enough room for all of them.

One rule: pure. If the store has lost its data, the same room may have been given to two jobs. The rebuild first revokes
growths whose workers have no pods yet, then the newest admissions that have no pods yet. An admission or a growth keeps
its room if it has pods, or if the store has charged it all along. Where an admin has lowered a quota, the excess
disappears as jobs end.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from crds.keys import JobKey
from crds.resources import amounts
from crds.resources.amounts import NOTHING, Amounts
from queues import limits
from queues.values import QueueSpec, Reservation


@dataclass(frozen=True, slots=True)
class _Room:
    """A limit that reservations share: of a queue, a cohort or the pool."""

    limit: Amounts
    used: Counter[str] = field(default_factory=Counter)

    def is_exceeded(self, charge: Amounts) -> bool:
        """Return whether the usage of any resource in this charge exceeds the limit."""
        limits = ((name, amounts.limit_for(self.limit, name)) for name, amount in charge.items() if amount > 0)
        return any(most is not None and self.used[name] > most for name, most in limits)


def smaller_charges(
    charged: Iterable[Reservation],
    without_growth: Mapping[JobKey, Reservation],
    queues: Mapping[str, QueueSpec],
    pool: Amounts | None,
) -> dict[JobKey, Reservation]:
    """Return the reservations that replace the reservations of jobs whose growth is revoked: the newest admissions
    first, until queues, cohorts and pool suffice for the other reservations.

    `without_growth` are the reservations that jobs would have without workers that have no pods.
    """
    charged = _newest_first(charged)
    rooms = _Rooms(queues, pool, charged)
    result = {}
    for charge in charged:
        smaller = without_growth.get(charge.key)
        if smaller is None:
            continue
        growth = replace(charge, charge=amounts.subtract(charge.charge, smaller.charge))
        if rooms.are_exceeded(growth):
            rooms.add(growth, -1)
            result[charge.key] = smaller
    return result


def _newest_first(charged: Iterable[Reservation]) -> list[Reservation]:
    return sorted(charged, key=lambda charge: (charge.epoch, charge.pick, charge.key), reverse=True)


def excess(
    charged: Iterable[Reservation], firm: Collection[JobKey], queues: Mapping[str, QueueSpec], pool: Amounts | None
) -> frozenset[JobKey]:
    """Return the keys of the admissions to revoke: the newest admissions first, until queues, cohorts, pool and ports
    suffice for the others.

    `firm` are the keys that keep their room in any case.
    """
    charged = _newest_first(charged)
    rooms = _Rooms(queues, pool, charged)
    ports = Counter(charge.port for charge in charged if charge.port)
    revoked = set()
    for charge in charged:
        if charge.key not in firm and (rooms.are_exceeded(charge) or ports[charge.port] > 1):
            rooms.add(charge, -1)
            ports[charge.port] -= 1
            revoked.add(charge.key)
    return frozenset(revoked)


class _Rooms:
    """The limits of every queue, of every cohort, and of the pool."""

    def __init__(self, queues: Mapping[str, QueueSpec], pool: Amounts | None, charged: Iterable[Reservation]) -> None:
        self._queues = queues
        self._pool = _Room(NOTHING if pool is None else pool)
        self._quotas = {name: _Room(limits.queue_limit(spec)) for name, spec in queues.items()}
        self._cohorts = {name: _Room(total) for name, total in limits.cohort_totals(queues.values()).items()}
        for charge in charged:
            self.add(charge, 1)

    def add(self, reservation: Reservation, times: int) -> None:
        for room, charge in self._of(reservation):
            for name, amount in charge.items():
                room.used[name] += times * amount

    def are_exceeded(self, reservation: Reservation) -> bool:
        return any(room.is_exceeded(charge) for room, charge in self._of(reservation))

    def _of(self, reservation: Reservation) -> Iterator[tuple[_Room, Amounts]]:
        """Yield the limits that a reservation counts for, each with the part of the charge that it limits."""
        yield self._pool, reservation.charge
        spec = self._queues.get(reservation.queue)
        if spec is not None:
            yield self._quotas[spec.name], reservation.charge
            if spec.cohort:
                limited = {name: amount for name, amount in reservation.charge.items() if name in spec.quota}
                yield self._cohorts[spec.cohort], limited
