"""A cluster in which a job may be found in any state, and which is seen late.

One rule: what a cache shows late is a pod as it was, or a pod that is gone, never the lack of one that was made: that
is what the versions which travel with a key are for. A request that meets something else than it was made for is
answered as an API server would, and the rest of the plan is given up, as `apply` does.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from crds import labels
from crds.torchjob.torchjob import TorchJob
from reconcilers.plan.plan import plan
from reconcilers.values import Action, CreateObject, DeleteObject, Observation, PatchObject, Plan
from reconcilers.views import pod_view
from reconcilers.views.pod_view import PodView
from tests.support.reconcilers.builders import RESERVATION
from tests.support.reconcilers.gang_simulation import GangSimulation

ROUNDS = 150


class _Outdated(Exception):
    """What was planned does not fit what there is."""


@dataclass
class Anywhere(GangSimulation):
    """A job that somebody has left in the middle of something."""

    seen: dict[str, PodView] = field(default_factory=dict)
    """The pods as a cache shows them that is late."""

    def __post_init__(self) -> None:
        job = self.job
        if job is None or job.admission is None:
            return
        binds = self._binds(job)
        stage_of = {each.lower(): stage.index for stage in job.spec.stages for each in stage.tasks}
        for pod in self.pods.values():
            key = (job.admission.attempt, job.status.restart_generation, pod.task)
            if (pod.attempt, pod.restart) == key[:2] and not pod.gated:
                self.reached.add(key)
            if binds and pod.task in stage_of and not _auxiliary(job, pod.task):
                self.in_group[pod.uid] = f"{job.metadata.name}-{stage_of[pod.task]}"
        for task_type, count in job.status.task_statuses.items():
            if count.ready + count.succeeded:
                self.reached.add((job.admission.attempt, job.status.restart_generation, task_type.lower()))

    def look(self) -> None:
        """What the cache shows from now on."""
        self.seen = dict(self.pods)

    def observe_late(self) -> Observation:
        """As seen when `look` was last called, with what was made since."""
        known = {pod.uid for pod in self.seen.values()}
        names = {pod.name for pod in self.pods.values() if pod.uid not in known}
        shown = {name: pod for name, pod in self.seen.items() if name not in names}
        shown |= {name: self.pods[name] for name in names}
        return replace(self.observe(), pods=tuple(sorted(shown.values(), key=lambda pod: pod.name)))

    def reconcile_late(self, most: int = 100) -> None:
        """A round by what the cache shows."""
        self._carry_out_some(plan(self.observe_late(), self.settings, self.now), most)

    def reconcile(self, most: int = 100) -> bool:
        planned = self.plan()
        self._carry_out_some(planned, most)
        return bool(planned.actions)

    def _carry_out_some(self, planned: Plan, most: int) -> None:
        try:
            for action in planned.actions[:most]:
                self.carry_out(action)
        except _Outdated:
            return

    def _carry_out_beside(self, action: Action) -> None:
        match action:
            case CreateObject(_, manifest) if manifest["metadata"]["name"] in {**self.groups, **self.requests}:
                return  # it is there
            case PatchObject(_, name, change) if name not in self.groups:
                assert change
                raise _Outdated
            case DeleteObject(_, name, uid) if name not in {**self.groups, **self.requests}:
                assert uid
            case _:
                super()._carry_out_beside(action)

    def _make(self, manifest: Mapping[str, Any]) -> None:
        there = self.pods.get(manifest["spec"]["podName"])
        if there is not None and there.uid == manifest["metadata"]["annotations"][labels.POD_UID]:
            super()._make(manifest)

    def _delete(self, pod: PodView, at_once: bool, seconds: int | None) -> None:
        there = self.pods.get(pod.name)
        if there is None or there.uid != pod.uid:
            raise _Outdated
        if at_once or not there.deleting:
            super()._delete(replace(there, deleting=pod.deleting), at_once, seconds)

    def _mark(self, pod: PodView, metadata: Mapping[str, Any]) -> None:
        there = self.pods.get(pod.name)
        if there is None or there.uid != pod.uid:
            raise _Outdated
        super()._mark(pod, metadata)

    def _create(self, manifest: Mapping[str, Any]) -> None:
        metadata, job = manifest["metadata"], self.job
        if metadata["name"] in self.pods:
            raise _Outdated
        assert job is not None
        assert metadata["labels"][labels.JOB_UID] == job.metadata.uid
        task = next(
            each for name, each in job.spec.tasks.items() if name.lower() == metadata["labels"][labels.TASK_TYPE]
        )
        assert int(metadata["labels"][labels.TASK_INDEX]) < task.num_tasks, "more pods than numTasks"
        super()._create(manifest)

    def _check_charge(self, job: TorchJob) -> None:
        """Pods that somebody left behind were charged to whom they belonged to."""
        if all(pod.uid.startswith("made-") for pod in self.pods.values()):
            super()._check_charge(job)

    def _count(self, before: TorchJob, after: TorchJob) -> None:
        super()._count(before, after)
        assert after.status.restart_count >= before.status.restart_count
        assert after.status.disruptions >= before.status.disruptions
        assert after.status.attempt >= before.status.attempt

    # What others do

    def coordinator(self) -> None:
        """It picks what waits, and frees what is over."""
        job = self.job
        occupied = any(pod_view.occupies(pod) for pod in self.pods.values())
        if job is None or job.finished or job.spec.suspend:
            self.reservation = self.reservation if occupied else None
            return
        if job.admission is None:
            found, newest = (
                self.reservation,
                max(job.status.attempt, self.reservation.attempt if self.reservation else 0),
            )
            serves = found is not None and found.serves(job.queue, job.spec.charge, port=job.spec.wants_port)
            if found is None or not serves or found.attempt <= job.status.attempt:
                self.reservation = replace(RESERVATION, attempt=newest + 1, charge=job.spec.charge)
        elif self.reservation is None or self.reservation.attempt < job.admission.attempt:
            self.reservation = replace(RESERVATION, attempt=job.admission.attempt)

    def nature(self) -> None:
        """Whatever is asked of schedulers and nodes is done."""
        self.pods = {name: pod for name, pod in self.pods.items() if not pod.deleting}
        self.groups = {name: group for name, group in self.groups.items() if not group.deleting}
        for name in self.groups:
            self.let_in(name)
        for name, request in self.requests.items():
            pod = self.pods.get(request.pod)
            if request.verdict == "InProgress":
                self.requests[name] = replace(request, verdict="Done")
                if pod is not None and pod.uid == request.pod_uid and pod.running:
                    self.pods[pod.name] = replace(pod, restarts=pod.restarts + 1)
        for name, pod in self.pods.items():
            if pod.phase in ("Pending", "Unknown") and not pod.gated and (pod.node or self.bound(pod)):
                self.pods[name] = replace(pod, phase="Running", node=pod.node or "n3")
            elif pod.running and pod.requested_restart and pod.completed_restart != pod.requested_restart:
                self.pods[name] = replace(
                    pod, completed_restart=pod.requested_restart, failed_restart="", restarts=pod.restarts + 1
                )

    def end(self, task: str) -> None:
        """The pods of a task are through with what they do."""
        for name, pod in self.pods.items():
            if pod.running and pod.task == task:
                self.pods[name] = replace(pod, phase="Succeeded", exit_code=0, reason="")

    def state(self) -> Any:
        """All that a round may change."""
        version = self.manifest["metadata"]["resourceVersion"] if self.manifest else ""
        return dict(self.pods), dict(self.groups), dict(self.requests), version, self.reservation

    def live(self) -> None:
        """Until the job is over: everything works, and pods end once nothing else happens."""
        for _ in range(ROUNDS):
            job = self.job
            if job is None or job.finished:
                return
            before = self.state()
            self.coordinator()
            planned = self.plan()
            self.reconcile()
            self.nature()
            if self.state() == before:
                self._time_or_an_end(job, planned)
        raise AssertionError(f"no end to it: {self.job} {self.pods} {self.plan()}")

    def _time_or_an_end(self, job: TorchJob, planned: Plan) -> None:
        if planned.requeue_after is not None and planned.requeue_after < 3600:
            self.now += timedelta(seconds=planned.requeue_after)
            return
        names = {each.lower() for each, task in job.spec.tasks.items() if task.restart_policy != "Always"}
        running = sorted({pod.task for pod in self.pods.values() if pod.running} & names)
        assert running, f"nothing runs and nothing happens: {self.pods} {self.groups} {planned}"
        self.end(running[0])


def _auxiliary(job: TorchJob, task: str) -> bool:
    return next(each.auxiliary for name, each in job.spec.tasks.items() if name.lower() == task)
