"""The sizes of jobs: which workers a job may have, which workers it may lose, and when its gates may open.

One rule: everything is judged from the cluster alone, after every call.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from crds import timestamps
from tests.faults.readings import Job, Pod

GATE_SECONDS = 30.0
"""The longest time for which a worker waits for others at its gate."""
Mark = tuple[str, str, int, int]
"""The uid of a job, and the name, the attempt and the restart of a pod."""


class SizeWatch:
    """The workers of all jobs, and what has happened to them."""

    def __init__(self, *, gentle: bool) -> None:
        self._gentle = gentle
        self._pods: dict[str, Pod] = {}
        """The pods that existed at the last look, by uid."""
        self._named: dict[str, Mark] = {}
        """The pods that a job named before it deleted them, by uid."""
        self._open: set[str] = set()
        """The uids of the pods whose gates have opened."""
        self._met: set[tuple[str, int, int]] = set()
        """The jobs, attempts and restarts in which a worker has passed its gate."""
        self._wrong: list[str] = []
        """The violations that cannot be repaired."""

    @property
    def removals(self) -> Counter[Mark]:
        """The number of pods that were named as victims, by place."""
        return Counter(self._named.values())

    def problems(self, jobs: Mapping[str, Job], pods: Sequence[Pod], now: float, *, excused: bool) -> Iterator[str]:
        """Yield what is wrong with the workers of jobs.

        With `excused`, writes of a process that slept are no violation if they can be undone but not prevented.
        """
        by_job: dict[str, list[Pod]] = {}
        for pod in pods:
            by_job.setdefault(pod.job, []).append(pod)
        found = []
        for uid, job in jobs.items():
            own = by_job.get(uid, [])
            self._named |= {pod.uid: mark(pod) for pod in own if pod.name in job.sizes.victims}
            yield from _bounds(job)
            yield from _surplus(job, own)
            yield from _worlds(job, own)
            found += [*self._hasty(job, own), *self._opened(job, own, now)]
            if self._gentle:
                found += self._deleted(uid, job, own)
        self._pods = {pod.uid: pod for pod in pods}
        self._wrong += [] if excused else found
        yield from self._wrong

    def _hasty(self, job: Job, pods: list[Pod]) -> Iterator[str]:
        """Yield new workers that the job was not granted, or that the job is about to remove."""
        for pod in pods:
            if pod.uid in self._pods or pod.task != "worker" or not _is_current(job, pod) or not job.sizes.granted:
                continue
            if pod.index not in job.sizes.indexes:
                yield f"pod {pod.name} was made before it was granted"
            if pod.name in job.sizes.victims:
                yield f"pod {pod.name} was made though it is to be removed"

    def _deleted(self, uid: str, job: Job, pods: list[Pod]) -> Iterator[str]:
        """Yield pods that a job lost although it had not named them as victims."""
        left = {pod.uid for pod in pods if not pod.deleting}
        for pod in self._pods.values():
            is_lost = pod.job == uid and pod.uid not in left and pod.occupies and not pod.deleting
            ended = job.finished or job.deleting or not _is_current(job, pod)
            if is_lost and not ended and pod.uid not in self._named:
                yield f"pod {pod.name} was deleted though nobody named it"

    def _opened(self, job: Job, pods: list[Pod], now: float) -> Iterator[str]:
        """Yield workers whose gate opened before all other workers had reached their gates."""
        for pod in pods:
            if not (pod.gated and pod.opened and pod.task == "worker") or pod.uid in self._open:
                continue
            self._open.add(pod.uid)
            if job.sizes.static:
                if pod.uid in self._pods and not _is_current(job, pod):
                    yield f"the gate of pod {pod.name} opened before it was in the world"
                if any(each.runs and not _is_current(job, each) for each in pods):
                    yield f"the gate of pod {pod.name} opened while an earlier world was there"
                continue
            when = (pod.job, pod.attempt, pod.restart)
            together = when not in self._met or "deadline" in job.sizes.scaling
            self._met.add(when)
            if together and job.sizes.elastic and _is_current(job, pod) and not _are_there(job, pods, now):
                yield f"the gate of pod {pod.name} opened before the others were there"


def mark(pod: Pod) -> Mark:
    """Return the place of a pod."""
    return pod.job, pod.name, pod.attempt, pod.restart


def unrest(job: Job, pods: Sequence[Pod], size: int, wish: int) -> list[str]:
    """Return the changes under way in the number of workers of a job. The job is to have `size` workers, of which its
    owner wants `wish`.
    """
    sizes, name = job.sizes, job.name
    workers = [pod for pod in pods if pod.task == "worker" and _is_current(job, pod)]
    found = {
        f"job {name} has {sizes.granted} workers, should have {size}": sizes.granted != size,
        f"job {name} wants {sizes.wish} workers": sizes.wish != wish,
        f"job {name} has {sizes.idle} workers that are not paid for": sizes.idle != size - wish,
        f"job {name} is being scaled: {dict(sizes.scaling)}": bool(sizes.scaling) and sizes.wish == wish,
        f"job {name} is asked to change its size": sizes.target.get("workers", sizes.granted) != sizes.granted,
        f"job {name} has {len(workers)} worker pods": len(workers) != size,
        f"job {name} has shut gates": any(pod.gated and not pod.opened for pod in workers),
    }
    return [what for what, is_so in found.items() if is_so]


def _is_current(job: Job, pod: Pod) -> bool:
    return (pod.attempt, pod.restart) == (job.admission.get("attempt"), job.generation)


def _bounds(job: Job) -> Iterator[str]:
    sizes = job.sizes
    if sizes.granted is None:
        return
    if not sizes.least <= sizes.granted <= sizes.most:
        yield f"job {job.name} was granted a number of workers that it must not have"
    if sizes.granted - len(sizes.victims) < sizes.least:
        yield f"job {job.name} gives up workers that it needs"
    if any("-worker-" not in victim for victim in sizes.victims):
        yield f"job {job.name} gives up pods that are no workers"


def _surplus(job: Job, pods: list[Pod]) -> Iterator[str]:
    workers = [pod for pod in pods if pod.task == "worker" and pod.occupies]
    granted = job.sizes.granted
    if granted and sum(pod.attempt == job.admission["attempt"] for pod in workers) > granted:
        yield f"job {job.name} has more workers than it was granted"


def _worlds(job: Job, pods: list[Pod]) -> Iterator[str]:
    """Yield a job whose workers are in different worlds, or of which two workers have the same rank."""
    together = [pod for pod in pods if job.sizes.static and pod.rank and pod.opened and _is_current(job, pod)]
    if len({pod.world for pod in together}) > 1 or len({pod.rank for pod in together}) < len(together):
        yield f"pods of {job.name} are in different worlds"
    if any(int(pod.rank) >= int(pod.world) for pod in together):
        yield f"pods of {job.name} have ranks beyond their world"


def _are_there(job: Job, pods: list[Pod], now: float) -> bool:
    """Return whether all granted workers are at their gates or past them, or whether the wait for them was long
    enough.
    """
    workers = [pod for pod in pods if pod.task == "worker" and _is_current(job, pod)]
    there = {pod.index for pod in workers if pod.opened or pod.arrived}
    if there >= {index for index in job.sizes.indexes if f"{job.name}-worker-{index}" not in job.sizes.victims}:
        return True
    return any(now - timestamps.parse_seconds(pod.arrived) >= GATE_SECONDS for pod in workers if pod.arrived)
