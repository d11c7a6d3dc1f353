"""The nodes while a plan is made: workers and jobs that leave them, and waiting jobs that get places there.

One rule: the trial is a copy. Where nodes do not matter, or a job's pods are not known, everything fits.

The problem: givers with 8 idle workers of 1 GPU on 8 nodes free 8 GPUs, and a job of one pod with 8 GPUs cannot use
them. So workers are asked back only if the pods of the waiting job find nodes once they have left.
"""

from collections.abc import Iterable, Mapping, Sequence

from crds.keys import JobKey
from queues.picking.picker import Picker
from queues.picking.queue_state import Candidate, QueueState
from queues.placement import domains, removals
from queues.placement.gangs import EVERY
from queues.placement.node_room import count_fitting
from queues.placement.places import WorkerPod
from queues.placement.removals import Leaver
from queues.resizing.givers import Giver
from queues.resizing.values import ElasticJob

MOST_DOMAINS = 8
"""The most domains in which workers are looked for that could leave for a job that requires one."""


class NodeTrial:
    """What is free on nodes if everything goes as planned so far."""

    def __init__(self, picker: Picker, jobs: Iterable[ElasticJob] = ()) -> None:
        """Begin with the places after a round of picks, without the workers of `jobs` that are on their way out."""
        self._now = picker.pool.places
        self._after = None if self._now is None else self._now.copy()
        self._holder = picker.reservation_holder
        self._gone: dict[JobKey, list[WorkerPod]] = {}
        """The workers that leave, by job, in the order in which they were counted as gone."""
        self._chosen: dict[JobKey, list[WorkerPod]] = {}
        """Those of them that leave because of their nodes."""
        for job in jobs:
            if job.leaving:
                self._leave(job.key, (), job.leaving)

    @property
    def known(self) -> bool:
        """Whether nodes matter at all."""
        return self._after is not None

    def counts(self, candidate: Candidate) -> bool:
        """Return whether it matters on which nodes there is room for a job."""
        return self._after is not None and candidate.waiting.gang is not None

    def fits(self, queue: QueueState, candidate: Candidate) -> bool:
        """Return whether the pods of a waiting job find nodes."""
        places, gang = self._after, candidate.waiting.gang
        if places is None or gang is None:
            return True
        return places.fits(gang, candidate.units, on_kept=queue.spec.name == self._holder)

    def take(self, candidate: Candidate) -> tuple[str, ...]:
        """Take places for a waiting job, and return the names of their nodes."""
        places, key = self._after, candidate.waiting.ticket[0]
        if places is None or candidate.waiting.gang is None:
            return ()
        places.take(key, candidate.waiting.gang, candidate.units)
        return tuple(sorted({places.room.names[node] for node, _ in places.jobs[key].waiting}))

    def choose(
        self, queue: QueueState, candidate: Candidate, most: Mapping[Giver, int]
    ) -> Mapping[Giver, Sequence[WorkerPod]] | None:
        """Return workers without which the pods of a waiting job find nodes; None if there are none. `most` is how many
        workers each giver can lose at most."""
        places, gang = self._after, candidate.waiting.gang
        if places is None or gang is None:
            return {}
        givers = list(most)
        pods = [(number, pod) for number, giver in enumerate(givers) for pod in self._staying(giver.job.key)]
        leavers = [Leaver(places.room.index(pod.node), pod.demand, number) for number, pod in pods]
        within = EVERY if queue.spec.name == self._holder else ~places.kept
        limits = {number: most[giver] for number, giver in enumerate(givers)}
        members = gang.with_further(candidate.units)
        possible = domains.possible(places.room, places.empty, gang, members, within)[:MOST_DOMAINS]
        sets = (removals.find(places.room, members, nodes, leavers, limits, places.kept) for nodes in possible)
        fewest = min((found for found in sets if found is not None), key=len, default=None)
        if fewest is None:
            return None
        chosen: dict[Giver, list[WorkerPod]] = {}
        for index in fewest:
            number, pod = pods[index]
            chosen.setdefault(givers[number], []).append(pod)
        return chosen

    def give(self, giver: Giver, chosen: Sequence[WorkerPod]) -> None:
        """Count all workers as gone that a job gives: the chosen ones, and others as the job loses them by itself."""
        self._chosen.setdefault(giver.job.key, []).extend(chosen)
        self._leave(giver.job.key, chosen, giver.given - self.gone(giver.job.key))

    def victims(self, key: JobKey) -> tuple[str, ...]:
        """Return the names of the workers that a job loses because of their nodes."""
        return tuple(pod.name for pod in self._chosen.get(key, ()))

    def gone(self, key: JobKey) -> int:
        """Return how many workers of a job are counted as gone."""
        return len(self._gone.get(key, ()))

    def return_workers(self, key: JobKey, count: int) -> bool:
        """Let the workers stay that were counted as gone last, if their nodes still have room. Return whether they
        stay."""
        gone = self._gone.get(key, [])
        returned = gone[max(0, len(gone) - count) :]
        for number, pod in enumerate(returned):
            if not self._has_room(pod):
                self._use(returned[:number], -1)
                return False
            self._use((pod,), 1)
        del gone[len(gone) - len(returned) :]
        self._chosen[key] = [pod for pod in self._chosen.get(key, ()) if pod not in returned]
        return True

    def free_job(self, key: JobKey, times: int) -> None:
        """Count all places of an admitted job as free, or as used again if `times` is below 0."""
        job = None if self._now is None else self._now.jobs.get(str(key))
        if job is not None and self._after is not None:
            for (node, demand), count in (*job.bound.items(), *job.waiting.items()):
                self._after.room.use(node, demand, -times * count)

    def _staying(self, key: JobKey) -> Sequence[WorkerPod]:
        gone = {pod.name for pod in self._gone.get(key, ())}
        workers = self._now.workers_of(str(key)) if self._now is not None else ()
        return [pod for pod in workers if pod.name not in gone]

    def _leave(self, key: JobKey, chosen: Sequence[WorkerPod], count: int) -> None:
        if self._after is None:
            return
        gone = [*chosen]
        if count > len(gone):
            gone += [pod for pod in self._staying(key) if pod not in chosen][: count - len(gone)]
        self._gone.setdefault(key, []).extend(gone)
        self._use(gone, -1)

    def _use(self, pods: Iterable[WorkerPod], times: int) -> None:
        if self._after is not None:
            room = self._after.room
            for pod in pods:
                room.use(room.index(pod.node), pod.demand, times)

    def _has_room(self, pod: WorkerPod) -> bool:
        places = self._after
        return places is None or count_fitting(places.room.free(places.room.index(pod.node)), pod.demand) > 0
