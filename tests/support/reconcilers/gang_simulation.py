"""The simulated cluster with a gang scheduler and a record of the tasks that may start.

One rule: every step asserts the guarantees of gangs and task graphs, independently of the plan.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

from crds import labels
from crds.resources.amounts import JOBS, NOTHING, add, fits
from crds.torchjob import demand
from crds.torchjob.torchjob import TorchJob
from gang import backends
from gang.values import GroupView
from reconcilers.pods import start_gate
from reconcilers.values import Action, CreateObject, DeleteObject, Observation, PatchObject
from reconcilers.views.pod_view import PodView
from tests.support.reconcilers.simulation import Simulation, merged

GROUP_OF = "scheduling.k8s.io/group-name"


@dataclass
class GangSimulation(Simulation):
    """One job whose pods Volcano may bind."""

    groups: dict[str, GroupView] = field(default_factory=dict)
    bodies: dict[str, dict[str, Any]] = field(default_factory=dict)
    in_group: dict[str, str] = field(default_factory=dict)
    """The group of each pod, by the pod's uid."""
    reached: set[tuple[int, int, str]] = field(default_factory=set)
    """The attempt, restart generation and task of each task whose upstreams reached the required phase."""
    demands: dict[str, dict[str, int]] = field(default_factory=dict)
    """The requests of each pod, by the pod's uid."""

    def observe(self) -> Observation:
        self._remember()
        groups = tuple(sorted(self.groups.values(), key=lambda each: each.name))
        return replace(super().observe(), groups=groups)

    def _remember(self) -> None:
        job = self.granted
        if job is None or job.admission is None:
            return
        for task_type, task in job.spec.tasks.items():
            if all(self._came(job, each.task_type, each.phase) for each in task.depends_on):
                self.reached.add((job.admission.attempt, job.status.restart_generation, task_type.lower()))

    def _came(self, job: TorchJob, upstream: str, phase: str) -> bool:
        if any(upstream in stage.awaits and str(stage.index) in job.status.stages for stage in job.spec.stages):
            return True
        current = [
            pod
            for pod in self.pods.values()
            if pod.task == upstream.lower() and pod.restart == job.status.restart_generation
        ]
        done = sum(pod.phase == "Succeeded" for pod in current)
        wanted = job.spec.tasks[upstream].num_tasks
        if phase == "Succeeded":
            return done == wanted
        return done + sum(pod.running for pod in current) >= min(wanted, job.spec.members(upstream))

    def _may_start(self, task: str) -> None:
        job = self.granted
        assert job is not None
        assert job.admission is not None
        key = (job.admission.attempt, job.status.restart_generation, task)
        assert key in self.reached, f"{task} starts before its upstreams"

    def carry_out(self, action: Action) -> None:
        self._remember()
        super().carry_out(action)

    def _carry_out_beside(self, action: Action) -> None:
        match action:
            case CreateObject(_, manifest) if manifest["kind"] == "PodGroup":
                assert manifest["metadata"]["name"] not in self.groups, "it is there already"
                self._put(manifest["metadata"]["name"], manifest)
            case PatchObject(_, name, change):
                assert self.groups[name].uid == change["metadata"]["uid"]
                self._put(name, merged(self.bodies[name], change))
            case DeleteObject(_, name, uid) if name in self.groups:
                assert self.groups.pop(name).uid == uid
            case _:
                super()._carry_out_beside(action)

    def _put(self, name: str, manifest: Mapping[str, Any]) -> None:
        job = self.granted
        assert job is not None
        assert job.admission is not None, "a group without an admission"
        self.made += 1
        uid = self.groups[name].uid if name in self.groups else f"group-{self.made}"
        self.bodies[name] = {**manifest, "metadata": {**manifest["metadata"], "uid": uid, "resourceVersion": "1"}}
        self.groups[name] = backends.get_backend("volcano").trim(self.bodies[name])
        stage = job.spec.stages[int(name.rpartition("-")[2])]
        most = sum(job.spec.tasks[each].num_tasks for each in stage.tasks if not job.spec.tasks[each].auxiliary)
        spec = self.bodies[name]["spec"]
        assert sum(spec["minTaskMember"].values()) == spec["minMember"] <= most
        assert job.metadata.uid == self.groups[name].job_uid

    def let_in(self, name: str) -> None:
        """Admit the group, as the scheduler does."""
        self.bodies[name]["status"] = {"phase": "Inqueue"}
        self.groups[name] = backends.get_backend("volcano").trim(self.bodies[name])

    def bound(self, pod: PodView) -> bool:
        """Return whether the scheduler binds the pod: it has no group, or its group is admitted and has enough pods."""
        name = self.in_group.get(pod.uid)
        if name is None:
            return True
        group = self.groups.get(name)
        if group is None or group.phase != "Ready":
            return False
        members = [each for each in self.pods.values() if self.in_group.get(each.uid) == name]
        return len(members) >= group.spec["minMember"]

    def _mark(self, pod: PodView, metadata: Mapping[str, Any]) -> None:
        super()._mark(pod, metadata)
        if metadata.get("annotations", {}).get(labels.START):
            self._may_start(pod.task)
            self.pods[pod.name] = replace(self.pods[pod.name], shut_since=None)

    def _create(self, manifest: Mapping[str, Any]) -> None:
        super()._create(manifest)
        job = self.granted
        assert job is not None
        made = self.pods[manifest["metadata"]["name"]]
        task = next(each for name, each in job.spec.tasks.items() if name.lower() == made.task)
        group = manifest["metadata"]["annotations"].get(GROUP_OF)
        assert (group is not None) == (self._binds(job) and not task.auxiliary)
        if group is not None:
            self.in_group[made.uid] = group
            others = [each for each in self.pods.values() if self.in_group.get(each.uid) == group and each != made]
            assert group in self.groups, "a pod before its group"
            assert self.groups[group].phase == "Ready" or others or self.settings.pods_at_once
            assert start_gate.needs_gate(task) or not made.gated
        if not made.gated:
            self._may_start(made.task)
        self.demands[made.uid] = demand.pod_demand(manifest["spec"])
        self._check_charge(job)

    def _binds(self, job: TorchJob) -> bool:
        return job.admission is not None and job.admission.gang_scheduler == "volcano"

    def _check_charge(self, job: TorchJob) -> None:
        """Assert that the existing pods request at most the job's charge."""
        there = [self.demands[pod.uid] for pod in self.pods.values() if not pod.finished and pod.uid in self.demands]
        assert fits(reduce(add, there, dict(NOTHING)), {JOBS: 1}, demand.job_charge(job.spec))
