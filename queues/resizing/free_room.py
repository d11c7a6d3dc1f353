"""The room that is free of every claim: in the pool, in the quotas of queues, and in cohorts.

One rule: room that is used now counts as used, and so does room that is promised. So idle growth takes neither the room
of workers that have not ended, nor the room of waiting jobs to which room is given back.
"""

from collections.abc import Mapping

from crds.resources import amounts
from crds.resources.amounts import PODS
from queues.picking.picker import Picker
from queues.picking.queue_state import QueueState, Shape, shape
from queues.resizing.room import Room
from queues.resizing.values import ElasticJob

Place = tuple[str, str]
"""A limit and a resource (`queues.resizing.values.IdleRoom`)."""
Need = tuple[Place, int]
"""What one step of a job takes of one place."""


class FreeRoom:
    """The free room in each place."""

    def __init__(self, picker: Picker, queues: Mapping[str, QueueState], room: Room) -> None:
        """`room` has the amounts that will be used once all planned changes are done. The room does not change any
        more.
        """
        self._picker = picker
        self._queues = queues
        self._room = room
        self.found: dict[Place, int] = {}
        """What was found free in the places that were asked for."""
        self._in_pool: dict[tuple[int, Shape], list[Need] | None] = {}

    def exhausted(self) -> list[str]:
        """Return the resources of which the pool has nothing left."""
        return [name for name in self._room.capacity if name != amounts.OTHERS and self._free_of_pool(name) <= 0]

    def needs(self, job: ElasticJob) -> list[Need] | None:
        """Return the amounts that one step of a job takes of each place that limits the job; None if a place has less
        room.
        """
        kind = job.step, shape(job.unit)
        if kind not in self._in_pool:
            self._in_pool[kind] = self._needs_of_pool(job)
        needs = self._in_pool[kind]
        spec, further = self._queues[job.queue].spec, self._needs_of_nodes(job)
        if needs is None or not (spec.quota or further):
            return needs
        for name in spec.quota:
            if (amount := job.unit.get(name, 0) * job.step) > 0:
                if not spec.cohort or name in spec.borrowing:
                    further.append(((f"queue:{spec.name}", name), amount))
                if spec.cohort:
                    further.append(((f"cohort:{spec.cohort}", name), amount))
        return None if any(self._free(place) < amount for place, amount in further) else needs + further

    def has_nodes(self, job: ElasticJob) -> bool:
        """Return whether one step of a job finds nodes."""
        return all(self._free(place) >= amount for place, amount in self._needs_of_nodes(job))

    def any_waiting_job_fits(self) -> bool:
        """Return whether the next round can pick a job."""
        holder = self._picker.reservation_holder
        return any(
            self._picker.pool.has_room(job, on_kept=name == holder)
            for name, queue in self._queues.items()
            for job in queue.eligible
        )

    def _needs_of_pool(self, job: ElasticJob) -> list[Need] | None:
        limited = (name for name in job.unit if amounts.limit_for(self._room.capacity, name) is not None)
        needs: list[Need] = [(("", name), amount * job.step) for name in limited if (amount := job.unit[name]) > 0]
        return None if any(self._free(place) < amount for place, amount in needs) else needs

    def _needs_of_nodes(self, job: ElasticJob) -> list[Need]:
        """Return how many workers a step of a job brings to the nodes on which they may run; nothing if nodes do not
        matter. Free is the number of such workers that find a node."""
        places = self._picker.pool.places
        gang = None if places is None else places.gang_of(str(job.key), "grow", {PODS: job.step})
        if places is None or gang is None or gang.further is None:
            return []
        place = f"nodes:{gang.further.where}", str(gang.further.demand)
        if place not in self.found:
            self.found[place] = places.room.total(gang.further, ~places.kept)
        return [(place, job.step)]

    def _free(self, place: Place) -> int:
        if place not in self.found:
            kind, _, owner = place[0].partition(":")
            if not kind:
                self.found[place] = self._free_of_pool(place[1])
            elif kind == "queue":
                self.found[place] = self._free_of_queue(owner, place[1])
            else:
                self.found[place] = self._free_of_cohort(owner, place[1])
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
