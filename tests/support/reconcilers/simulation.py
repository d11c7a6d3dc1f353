"""A cluster in memory with one job. The simulation plays the API server, the node and the coordinator.

One rule: the simulation accepts no request that a real API server would refuse, and asserts that forbidden requests
never occur.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from crds import labels, timestamps
from crds.torchjob import grant, torchjob
from crds.torchjob.conditions import TRUE_IN
from crds.torchjob.torchjob import TorchJob
from queues.values import Reservation
from reconcilers.plan import progress
from reconcilers.plan.in_place import interruptions
from reconcilers.plan.plan import plan
from reconcilers.pods import task_members
from reconcilers.pods.grants import Grant
from reconcilers.settings import ReconcileSettings
from reconcilers.values import (
    Action,
    CreateObject,
    CreatePods,
    DeleteJob,
    DeleteObject,
    DeletePods,
    EmitEvent,
    Observation,
    PatchPodMetadata,
    Plan,
    WriteStatus,
)
from reconcilers.views import pod_place, recreate_request
from reconcilers.views.pod_view import PodView
from reconcilers.views.recreate_request import RecreateView
from tests.support.reconcilers import builders

SOON = 3600.0
"""The longest time, in seconds, that the simulation waits for the next reconcile."""


@dataclass
class Simulation:
    """One job, its pods and its reservation."""

    manifest: dict[str, Any] | None
    pods: dict[str, PodView] = field(default_factory=dict)
    reservation: Reservation | None = None
    settings: ReconcileSettings = field(default_factory=ReconcileSettings)
    made: int = 0
    counted: set[tuple[str, int]] = field(default_factory=set)
    """The pods, and restarts of their main containers, that were counted as restarts of the job."""
    requests: dict[str, RecreateView] = field(default_factory=dict)
    dead: frozenset[str] = frozenset()
    departures: Mapping[str, str] = field(default_factory=dict)
    other_nodes: bool = False
    node_labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    now: datetime = builders.NOW
    told: int = 0
    stopped: set[str] = field(default_factory=set)
    """The uids of the pods that ended with 0 while torchq asked for their end."""

    @property
    def job(self) -> TorchJob | None:
        return torchjob.parse(self.manifest) if self.manifest else None

    @property
    def granted(self) -> TorchJob | None:
        """The job as its admission grants it."""
        job = self.job
        return job if job is None or job.admission is None else grant.as_granted(job, job.admission)

    def observe(self) -> Observation:
        pods = tuple(sorted(self.pods.values(), key=lambda pod: pod.name))
        return Observation(
            key=builders.KEY,
            job=self.job,
            pods=pods,
            reservation=self.reservation,
            recreations=tuple(sorted(self.requests.values(), key=lambda each: each.name)),
            dead_nodes=self.dead & {pod.node for pod in pods},
            departures=self.departures,
            other_nodes=self.other_nodes,
            node_labels=self.node_labels,
        )

    def plan(self) -> Plan:
        return plan(self.observe(), self.settings, self.now)

    def reconcile(self, most: int = 100) -> bool:
        """Plan, carry out the first actions, and return whether the plan had any action."""
        planned = self.plan()
        for action in planned.actions[:most]:
            self.carry_out(action)
        return bool(planned.actions)

    def settle(self) -> None:
        """Reconcile until no action is left. Terminating pods disappear and time passes, but nodes do nothing."""
        for _ in range(40):
            self.pods = {name: pod for name, pod in self.pods.items() if not pod.deleting}
            planned = self.plan()
            for action in planned.actions:
                self.carry_out(action)
            if planned.requeue_after is not None and planned.requeue_after < SOON:
                self.now += timedelta(seconds=planned.requeue_after)
            elif not planned.actions:
                return
        raise AssertionError(f"no end to it: {self.plan()}")

    def carry_out(self, action: Action) -> None:
        match action:
            case WriteStatus(change, resource_version):
                self._write(change["status"], resource_version)
            case DeletePods(pods, at_once, seconds):
                for pod in pods:
                    self._delete(pod, at_once, seconds)
            case CreatePods(manifests):
                for manifest in manifests:
                    self._create(manifest)
            case PatchPodMetadata(pods, metadata):
                for pod in pods:
                    self._mark(pod, metadata)
            case DeleteJob():
                assert self.job is not None
                assert self.job.is_finished
                self.manifest = None
            case _:
                self._carry_out_beside(action)

    def _carry_out_beside(self, action: Action) -> None:
        match action:
            case CreateObject(_, manifest):
                self._make(manifest)
            case DeleteObject(_, name, uid):
                assert self.requests.pop(name).uid == uid
            case EmitEvent():
                self.told += 1

    def _delete(self, pod: PodView, at_once: bool, seconds: int | None) -> None:
        there = self.pods.get(pod.name)
        if there is None:
            return
        assert there.uid == pod.uid
        shorter = seconds is not None and pod.grace is not None and seconds < pod.grace
        assert at_once or not pod.deleting or shorter, "a pod is deleted twice"
        assert not at_once or pod.node in self.dead, "a pod on a healthy node is not deleted at once"
        assert self._may_go(pod), "the status does not explain the deletion"
        if at_once:
            del self.pods[pod.name]
        else:
            grace = (30 if pod.grace is None else pod.grace) if seconds is None else seconds
            self.pods[pod.name] = replace(pod, deleting=True, grace=grace, deadline=self.now.timestamp() + grace)

    def _may_go(self, pod: PodView) -> bool:
        """Return whether the pod may be deleted: the status of a running job has to record the cause first."""
        job = self.job
        if job is None or job.is_finished or job.spec.suspend or job.admission is None or self.reservation is None:
            return True
        current = pod.attempt == job.admission.attempt == self.reservation.attempt
        member = Grant(job, job.admission).members.get(pod.name)
        expected = member is not None and member.is_labelled(pod)
        outdated = pod.restart != job.status.restart_generation
        is_over = pod.task in progress.completed_tasks(job)
        return not current or not expected or outdated or is_over or pod.uid in job.status.replacing

    def _mark(self, pod: PodView, metadata: Mapping[str, Any]) -> None:
        there = self.pods.get(pod.name)
        if there is None or there.uid != pod.uid:
            return
        marks, notes = metadata.get("labels", {}), metadata.get("annotations", {})
        self.pods[pod.name] = replace(
            there,
            restart=int(marks.get(labels.RESTART, there.restart)),
            hosts=pod_place.hosts_digest(notes) or there.hosts,
            shut_since=None if labels.START in notes else there.shut_since,
            requested_restart=notes.get(labels.RESTART_CONTAINERS, there.requested_restart),
            restart_requested_at=timestamps.seconds_or_none(notes[labels.RESTART_REQUESTED_AT])
            if labels.RESTART_REQUESTED_AT in notes
            else there.restart_requested_at,
            counted_restarts=int(notes.get(labels.RESTARTS_HANDLED, there.counted_restarts)),
            place=_place(there.place, notes),
        )

    def _make(self, manifest: Mapping[str, Any]) -> None:
        metadata = manifest["metadata"]
        pod = self.pods[manifest["spec"]["podName"]]
        assert pod.uid == metadata["annotations"][labels.POD_UID]
        assert metadata["name"] not in self.requests, "the request exists already"
        created = {"uid": f"request-{self.made}", "creationTimestamp": timestamps.format_time(self.now.timestamp())}
        self.made += 1
        self.requests[metadata["name"]] = recreate_request.trim({**manifest, "metadata": {**metadata, **created}})

    def _write(self, change: Mapping[str, Any], resource_version: str) -> None:
        before = self.job
        assert before is not None
        assert before.metadata.resource_version == resource_version
        assert "queue" not in change or "admission" in change, "otherwise the coordinator writes this field"
        assert self.manifest is not None
        self.manifest["status"] = merged(self.manifest["status"], change)
        self.manifest["metadata"]["resourceVersion"] = str(int(resource_version) + 1)
        after = self.job
        assert after is not None
        assert after.status.phase == before.status.phase or not before.is_finished, "a finished job keeps its phase"
        assert change.keys() <= {"conditions", "observedGeneration"} or not before.is_finished
        if after.status.phase == "Succeeded" and not before.is_finished:
            self._check_success(after)
        assert set(TRUE_IN[after.status.phase]) == {
            each.type for each in after.status.conditions if each.status == "True"
        }
        self._count(before, after)

    def stop(self, name: str) -> None:
        """Let a program save and exit with 0 where its pod is being deleted or restarted, as trainers do."""
        pod, job = self.pods[name], self.job
        if pod.running and job is not None and self._is_asked_to_end(job, pod):
            self.stopped.add(pod.uid)
            self.pods[name] = replace(pod, phase="Succeeded", exit_code=0, reason="Completed")

    def _is_asked_to_end(self, job: TorchJob, pod: PodView) -> bool:
        asked = interruptions.is_marked(pod) or any(
            each.pod_uid == pod.uid and each.verdict == "InProgress" and each.restarts >= pod.restarts
            for each in self.requests.values()
        )
        return asked or pod.uid in job.status.replacing or pod.restart != job.status.restart_generation

    def _check_success(self, job: TorchJob) -> None:
        """Check that a pod that was asked to end does not prove the success of the job."""
        decisive = {task.lower() for task in task_members.decisive_tasks(job)}
        proofs = {pod.uid for pod in self.pods.values() if pod.task in decisive and pod.phase == "Succeeded"}
        assert not proofs & self.stopped, "a pod that was stopped has proved a success"

    def _count(self, before: TorchJob, after: TorchJob) -> None:
        old, new = before.status, after.status
        assert new.restart_generation >= old.restart_generation
        restarts, disruptions = new.restart_count - old.restart_count, new.disruptions - old.disruptions
        assert (restarts, disruptions) in {(0, 0), (1, 0), (0, 1)}, (
            "restarts are counted one at a time, and no count is lost"
        )
        if restarts:
            failed = {(pod.uid, 0) for pod in self.pods.values() if pod.phase == "Failed"}
            again = {(pod.uid, pod.restarts) for pod in self.pods.values() if pod.restarts > pod.counted_restarts}
            assert (failed | again) - self.counted, "a failure was counted twice"
            self.counted |= failed | again

    def _create(self, manifest: Mapping[str, Any]) -> None:
        job = self.job
        assert job is not None
        assert not job.is_finished
        assert not job.spec.suspend
        assert job.admission is not None, "a pod is created without an admission"
        assert self.reservation is not None
        assert manifest["metadata"]["labels"][labels.ATTEMPT] == str(job.admission.attempt)
        assert job.admission.attempt == self.reservation.attempt
        name = manifest["metadata"]["name"]
        assert name not in self.pods, "the name of the pod is taken"
        self.made += 1
        self.pods[name] = builders.view(manifest, uid=f"made-{self.made}")


def _place(before: str, notes: Mapping[str, str]) -> str:
    """Return the place of a pod after a change of its annotations."""
    known = dict(zip(pod_place.NAMES, before.split(" "), strict=True)) if before else {}
    return pod_place.read({**known, **notes})


def merged(target: Any, change: Any) -> Any:
    """Return the target with a JSON merge patch applied (RFC 7386)."""
    if not isinstance(change, Mapping):
        return copy.deepcopy(change)
    result = dict(target) if isinstance(target, Mapping) else {}
    for name, value in change.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result
