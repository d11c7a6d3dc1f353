"""A simulated cluster that starts in any state and is observed through a late cache.

One rule: the late cache may show an old version of a pod, or a deleted pod, but it never misses a created pod. The
versions that travel with a key ensure this for the real cache. A request for an outdated object is refused, as an API
server would refuse it. The rest of the plan is then dropped, as `apply` does.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from crds import labels
from crds.torchjob.tasks import RENDEZVOUS
from crds.torchjob.torchjob import TorchJob
from reconcilers.plan.plan import plan
from reconcilers.values import Action, CreateObject, DeleteObject, Observation, PatchObject, Plan
from reconcilers.views import pod_view
from reconcilers.views.pod_view import PodView
from tests.support.reconcilers.builders import RESERVATION
from tests.support.reconcilers.gang_simulation import GangSimulation

ROUNDS = 150


class _Outdated(Exception):
    """A planned action does not fit the existing objects."""


@dataclass
class Anywhere(GangSimulation):
    """A job that starts in any state."""

    cached_pods: dict[str, PodView] = field(default_factory=dict)
    """The pods as the late cache shows them."""

    def __post_init__(self) -> None:
        job = self.granted
        if job is None or job.admission is None:
            return
        binds = self.backend.together
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

    def refresh_cache(self) -> None:
        """Update the late cache to the current pods."""
        self.cached_pods = dict(self.pods)

    def observe_late(self) -> Observation:
        """Return the observation as of the last call of `refresh_cache`, plus the pods created since."""
        known = {pod.uid for pod in self.cached_pods.values()}
        names = {pod.name for pod in self.pods.values() if pod.uid not in known}
        cached = {name: pod for name, pod in self.cached_pods.items() if name not in names}
        cached |= {name: self.pods[name] for name in names}
        return replace(self.observe(), pods=tuple(sorted(cached.values(), key=lambda pod: pod.name)))

    def reconcile_late(self, most: int = 100) -> None:
        """Reconcile once with the observation of the late cache."""
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
                return  # the object exists already
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
        metadata, job = manifest["metadata"], self.granted
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
        """Check the charge only if the simulation created all pods; older pods belong to another charge."""
        if all(pod.uid.startswith("made-") for pod in self.pods.values()):
            super()._check_charge(job)

    def _count(self, before: TorchJob, after: TorchJob) -> None:
        super()._count(before, after)
        assert after.status.restart_count >= before.status.restart_count
        assert after.status.disruptions >= before.status.disruptions
        assert after.status.attempt >= before.status.attempt

    # Actions of the coordinator, the schedulers and the nodes

    def coordinator(self) -> None:
        """Reserve resources for a waiting job, and release the resources of an ended job."""
        job = self.job
        occupied = any(pod_view.occupies(pod) for pod in self.pods.values())
        if job is None or job.is_finished or job.spec.suspend:
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
        """Do all the work that schedulers and nodes are asked to do."""
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
            if pod.phase in ("Pending", "Unknown") and (pod.node or self.bound(pod)):
                self.pods[name] = self._go_on(pod)
            elif pod.running and pod.requested_restart and pod.completed_restart != pod.requested_restart:
                self.pods[name] = replace(
                    pod, completed_restart=pod.requested_restart, failed_restart="", restarts=pod.restarts + 1
                )

    def _go_on(self, pod: PodView) -> PodView:
        """Return a bound pod as its node starts it: up to its closed gate, or past an open gate."""
        if pod.gated:
            return pod if pod.waits else replace(pod, shut_since=self.now.timestamp())
        return replace(pod, phase="Running", node=pod.node or "n3")

    def end(self, task: str) -> None:
        """Let the running pods of a task succeed."""
        for name, pod in self.pods.items():
            if pod.running and pod.task == task:
                self.pods[name] = replace(pod, phase="Succeeded", exit_code=0, reason="")

    def state(self) -> Any:
        """Return everything that a reconcile may change."""
        version = self.manifest["metadata"]["resourceVersion"] if self.manifest else ""
        return dict(self.pods), dict(self.groups), dict(self.requests), version, self.reservation

    def live(self) -> None:
        """Run the job to its end: all components work, and pods succeed once nothing else changes."""
        for _ in range(ROUNDS):
            job = self.granted
            if job is None or job.is_finished:
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
        endless = {RENDEZVOUS, *(each for each, task in job.spec.tasks.items() if task.restart_policy == "Always")}
        names = {each.lower() for each in job.spec.tasks if each not in endless}
        running = sorted({pod.task for pod in self.pods.values() if pod.running} & names)
        assert running, f"nothing runs and nothing happens: {self.pods} {self.groups} {planned}"
        self.end(running[0])


def _auxiliary(job: TorchJob, task: str) -> bool:
    return next(each.auxiliary for name, each in job.spec.tasks.items() if name.lower() == task)
