"""Queues with elastic jobs, running jobs and waiting jobs, as a picker shows them to a plan of resizes."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from crds.resources import amounts
from crds.resources.amounts import Amounts
from queues import order
from queues.picking.picker import Picker
from queues.placement.places import Places
from queues.resizing import resize_plan
from queues.resizing.values import NO_IDLE_ROOM, ElasticJob, IdleRoom, Plan
from queues.rules import PickRules
from queues.values import Entry, OvertakenJob, QueueSnapshot, QueueSpec, Snapshot, WaitingEntry
from tests.support.clock import START
from tests.support.queues.builders import GPU, key, resources

BY_GPU = PickRules(cost=GPU)


def elastic(
    name: str, queue: str = "a", workers: int = 4, least: int = 1, most: int = 8, idle: int = 0, **more: object
) -> ElasticJob:
    """Return an elastic job with workers of 1 GPU each and autoscale on."""
    job = ElasticJob(
        key=key(name),
        queue=queue,
        workers=workers,
        least=least,
        wanted=workers - idle,
        most=most,
        unit={GPU: 1},
        idle=idle,
        autoscale=True,
        submitted=START,
    )
    return replace(job, **more)  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class Scene:
    """The state of all queues."""

    queues: Sequence[QueueSpec]
    pool: Amounts | None = None
    jobs: Sequence[ElasticJob] = ()
    rigid: Mapping[str, int] = field(default_factory=dict)
    """By queue, the GPUs of running jobs that are not elastic."""
    waiting: Sequence[Entry] = ()
    reserved: str = ""
    """The queue whose first job holds the pool's reservation."""
    places: Places | None = None
    """The places of jobs on nodes, where they count."""

    def snapshot(self) -> Snapshot:
        """Return the state as a snapshot."""
        views = tuple(self._view(spec) for spec in sorted(self.queues, key=lambda spec: spec.name))
        used: dict[str, int] = {}
        for view in views:
            amounts.increase(used, view.usage)
        return Snapshot(epoch=1, revision=1, pool=self.pool, pool_usage=used, queues=views)

    def picker(self, now: float = START) -> Picker:
        """Return a picker after a round of picks."""
        picker = Picker(self.snapshot(), BY_GPU, places=self.places)
        picker.picks(now, 1_000)
        return picker

    def plan(self, now: float = START, idle_since: IdleRoom = NO_IDLE_ROOM, *, with_kept: bool = False) -> Plan:
        """Return the plan after a round of picks."""
        return resize_plan.plan(self.picker(now), self.jobs, now, idle_since, with_kept=with_kept)

    def unpicked_plan(self) -> Plan:
        """Return the plan, with all reasons, after a round that picked nothing."""
        return resize_plan.plan(Picker(self.snapshot(), BY_GPU), self.jobs, START, with_kept=True)

    def sizes(self, now: float = START) -> dict[str, int]:
        """Return the new sizes of the jobs that a plan resizes, by name."""
        return {resize.key.name: resize.workers for resize in self.plan(now).resizes}

    def usage(self, jobs: Iterable[ElasticJob]) -> dict[str, dict[str, int]]:
        """Return what each queue uses with these elastic jobs, and the use of the pool under the empty name."""
        used: dict[str, dict[str, int]] = {spec.name: {} for spec in self.queues} | {"": {}}
        for job in jobs:
            for name in ("", job.queue):
                amounts.increase(used[name], job.unit, job.workers)
        for queue, gpus in self.rigid.items():
            for name in ("", queue):
                amounts.increase(used[name], {GPU: gpus})
        return used

    def gone(self, sizes: Mapping[str, int], still: Collection[str] = ()) -> "Scene":
        """Return the scene once the jobs have these sizes. Jobs in `still` have workers on their way out."""
        return replace(self, jobs=[_resized(job, sizes, still) for job in self.jobs])

    def _view(self, spec: QueueSpec) -> QueueSnapshot:
        ordered = sorted(
            (entry for entry in self.waiting if entry.queue == spec.name),
            key=lambda entry: order.place(entry, spec.aging_seconds),
        )
        overtaken = None
        if spec.name == self.reserved:
            overtaken = OvertakenJob(key=ordered[0].key, times=9, since=START - 60, impatient=True)
        return QueueSnapshot(
            spec=spec,
            usage=self.usage(self.jobs)[spec.name],
            waiting=len(ordered),
            heads=tuple(WaitingEntry(entry, 1) for entry in ordered),
            overtaken=overtaken,
        )


def _resized(job: ElasticJob, sizes: Mapping[str, int], still: Collection[str]) -> ElasticJob:
    size = sizes.get(job.key.name, job.workers)
    if job.key.name in still:
        return replace(job, leaving=job.workers - size, busy="Scaling")
    return replace(job, workers=size, idle=max(0, job.idle - max(0, job.workers - size)))


def with_gpus(name: str, gpus: int, **more: object) -> QueueSpec:
    """Return a queue with a quota of GPUs."""
    return replace(QueueSpec(name=name, quota=resources(gpu=gpus)), **more)  # type: ignore[arg-type]
