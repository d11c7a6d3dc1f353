"""What is free of every claim: in the pool, in the quotas of queues, and in cohorts.

One rule: what is used now counts as used, and what is promised counts as well. So idle growth takes neither the room of
workers that have not ended, nor that of waiting jobs to which it is given back.
"""

from collections.abc import Iterator, Mapping

from crds.resources import amounts
from queues.picking.picker import Picker
from queues.picking.queue_state import QueueState
from queues.resizing.room import Room
from queues.resizing.values import ElasticJob

Place = tuple[str, str]
"""A limit and a resource (`queues.resizing.values.IdleRoom`)."""
Need = tuple[Place, int]
"""What one step of a job takes of one place."""


class FreeRoom:
    """What is free in each place."""

    def __init__(self, picker: Picker, queues: Mapping[str, QueueState], room: Room) -> None:
        """`room` has what will be used once all that is planned has happened. It does not change any more."""
        self._picker = picker
        self._queues = queues
        self._room = room
        self.found: dict[Place, int] = {}
        """What was found free in the places that were asked for."""

    def needs(self, job: ElasticJob) -> list[Need] | None:
        """Return what one step of a job takes of each place that limits it; None if one of them has less."""
        needs: list[Need] = []
        for place, amount in self._limiting(job):
            if self.found.get(place, amount) < amount or self._free(place) < amount:
                return None
            needs.append((place, amount))
        return needs

    def any_waiting_job_fits(self) -> bool:
        """Return whether the next round can pick a job."""
        pool, holder = self._picker.pool, self._picker.reservation_holder
        return any(
            pool.fits(job.demand) or (name == holder and pool.fits_reserved(job.demand))
            for name, queue in self._queues.items()
            for job in queue.eligible
        )

    def _limiting(self, job: ElasticJob) -> Iterator[Need]:
        """Yield what a step takes of each place that may limit it, whether there is room or not."""
        spec, unit, step = self._queues[job.queue].spec, job.unit, job.step
        for name, amount in unit.items():
            if amount > 0 and amounts.limit_for(self._room.capacity, name) is not None:
                yield ("", name), amount * step
        for name in spec.quota:
            amount = unit.get(name, 0) * step
            if amount > 0:
                if not spec.cohort or name in spec.borrowing:
                    yield (f"queue:{spec.name}", name), amount
                if spec.cohort:
                    yield (f"cohort:{spec.cohort}", name), amount

    def _free(self, place: Place) -> int:
        if place not in self.found:
            limit, name = place
            kind, _, owner = limit.partition(":")
            if not kind:
                self.found[place] = self._free_of_pool(name)
            else:
                self.found[place] = (
                    self._free_of_queue(owner, name) if kind == "queue" else self._free_of_cohort(owner, name)
                )
        return self.found[place]

    def _free_of_pool(self, name: str) -> int:
        most = amounts.limit_for(self._room.capacity, name) or 0
        return most - max(self._picker.pool.used_or_reserved.get(name, 0), self._room.pool_used.get(name, 0))

    def _free_of_queue(self, queue: str, name: str) -> int:
        state = self._queues[queue]
        most = state.spec.quota[name] + (state.spec.borrowing.get(name, 0) if state.spec.cohort else 0)
        return most - max(state.used.get(name, 0), self._room.used(queue).get(name, 0))

    def _free_of_cohort(self, cohort: str, name: str) -> int:
        found = self._picker.cohort(cohort)
        if found is None:
            return 0
        now = found.used.get(name, 0) + found.claims.get(name, 0)
        planned = self._room.cohort_used(cohort).get(name, 0) + self._room.claims(cohort).get(name, 0)
        return found.total[name] - max(now, planned)
