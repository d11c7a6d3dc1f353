"""The simulated cluster with a gang scheduler and a record of the tasks that may start.

One rule: every step asserts the guarantees of gangs and task graphs, independently of the plan.

The simulated schedulers act as real schedulers do, not as they promise. No scheduler counts pods that have finished.
v1alpha2 of Kubernetes refuses another minCount. Koordinator binds only the minimum of the pods of a gang, and forgets
the other pods.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import reduce
from typing import Any

from crds import labels
from crds.api_resources import ALPHA_POD_GROUPS, POD_GROUPS
from crds.resources.amounts import JOBS, NOTHING, add, fits
from crds.torchjob import demand
from crds.torchjob.torchjob import TorchJob
from gang import backends
from gang.backend import Backend
from gang.values import GroupView
from reconcilers.pods import start_gate
from reconcilers.values import Action, CreateObject, DeleteObject, Observation, PatchObject
from reconcilers.views.pod_view import PodView
from tests.support.reconcilers.simulation import Simulation, merged

GROUP_OF = "scheduling.k8s.io/group-name"
KOORDINATOR = "gang.scheduling.koordinator.sh"
POD_GROUP = "scheduling.x-k8s.io/pod-group"


@dataclass
class GangSimulation(Simulation):
    """One job whose pods a gang scheduler may bind."""

    groups: dict[str, GroupView] = field(default_factory=dict)
    bodies: dict[str, dict[str, Any]] = field(default_factory=dict)
    in_group: dict[str, str] = field(default_factory=dict)
    """The group of each pod, by the pod's uid."""
    reached: set[tuple[int, int, str]] = field(default_factory=set)
    """The attempt, restart generation and task of each task whose upstreams reached the required phase."""
    demands: dict[str, dict[str, int]] = field(default_factory=dict)
    """The requests of each pod, by the pod's uid."""
    minimums: dict[str, int] = field(default_factory=dict)
    """The minimum of each gang of Koordinator, as the first pod of the gang has set it."""

    @property
    def backend(self) -> Backend:
        job = self.granted
        assert job is not None
        name = job.admission.gang_scheduler if job.admission is not None else None
        return backends.get_backend(name, self.settings.served.__contains__)

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
                assert manifest["metadata"]["name"] not in self.groups, "the group exists already"
                self._put(manifest["metadata"]["name"], manifest)
            case PatchObject(_, name, change):
                assert self.groups[name].uid == change["metadata"]["uid"]
                assert "spec" not in change or self.groups[name].resource != ALPHA_POD_GROUPS, "the group is immutable"
                self._put(name, merged(self.bodies[name], change))
            case DeleteObject(_, name, uid) if name in self.groups:
                assert self.groups.pop(name).uid == uid
            case _:
                super()._carry_out_beside(action)

    def _put(self, name: str, manifest: Mapping[str, Any]) -> None:
        job = self.granted
        assert job is not None
        assert job.admission is not None, "a group is created without an admission"
        self.made += 1
        uid = self.groups[name].uid if name in self.groups else f"group-{self.made}"
        self.bodies[name] = {**manifest, "metadata": {**manifest["metadata"], "uid": uid, "resourceVersion": "1"}}
        self.groups[name] = self.backend.trim(self.bodies[name])
        stage = job.spec.stages[int(name.rpartition("-")[2])]
        most = sum(job.spec.tasks[each].num_tasks for each in stage.tasks if not job.spec.tasks[each].auxiliary)
        spec = self.bodies[name]["spec"]
        assert self._minimum(name) <= most
        if "minTaskMember" in spec:
            assert sum(spec["minTaskMember"].values()) == spec["minMember"]
        assert job.metadata.uid == self.groups[name].job_uid

    def let_in(self, name: str) -> None:
        """Admit the group, as the scheduler does."""
        self.bodies[name]["status"] = {"phase": "Inqueue"}
        self.groups[name] = backends.get_backend_of_kind(self.groups[name].resource).trim(self.bodies[name])

    def _minimum(self, name: str) -> int:
        spec = self.bodies[name]["spec"] if name in self.bodies else {"minMember": self.minimums[name]}
        return int(spec["minMember"] if "minMember" in spec else spec["schedulingPolicy"]["gang"]["minCount"])

    def bound(self, pod: PodView) -> bool:
        """Return whether the scheduler binds the pod: it has no group, or its group is admitted and has enough pods."""
        name = self.in_group.get(pod.uid)
        if name is None or pod.node:
            return True
        members = [each for each in self.pods.values() if self.in_group.get(each.uid) == name and not each.finished]
        if name in self.minimums:
            first = {each.uid for each in sorted(members, key=lambda each: not each.node)[: self.minimums[name]]}
            return len(members) >= self.minimums[name] and pod.uid in first
        group = self.groups.get(name)
        return group is not None and group.phase == "Ready" and len(members) >= self._minimum(name)

    def _mark(self, pod: PodView, metadata: Mapping[str, Any]) -> None:
        super()._mark(pod, metadata)
        if metadata.get("annotations", {}).get(labels.START):
            self._may_start(pod.task)
            assert not self._earlier_runs(), "the pod may meet an earlier run"
            self.pods[pod.name] = replace(self.pods[pod.name], shut_since=None)

    def _create(self, manifest: Mapping[str, Any]) -> None:
        super()._create(manifest)
        job = self.granted
        assert job is not None
        made = self.pods[manifest["metadata"]["name"]]
        task = next(each for name, each in job.spec.tasks.items() if name.lower() == made.task)
        group = self._group_of(manifest)
        binds = self.backend.together and not task.auxiliary
        assert (group is not None) == binds or (group is None and binds and self.backend.is_fixed)
        if group is not None:
            self.in_group[made.uid] = group
        if group is not None and group not in self.minimums:
            others = [each for each in self.pods.values() if self.in_group.get(each.uid) == group and each != made]
            assert group in self.groups, "a pod is created before its group"
            assert self.groups[group].phase == "Ready" or others or self.settings.pods_at_once
            assert start_gate.needs_gate(task) or not made.gated or self._earlier_runs()
        if not made.gated:
            self._may_start(made.task)
        self.demands[made.uid] = demand.pod_demand(manifest["spec"])
        self._check_charge(job)

    def _group_of(self, manifest: Mapping[str, Any]) -> str | None:
        metadata, spec = manifest["metadata"], manifest["spec"]
        annotations = metadata["annotations"]
        if (name := annotations.get(f"{KOORDINATOR}/name")) is not None:
            there = any(self.in_group.get(pod.uid) == name for pod in self.pods.values())
            least = int(annotations[f"{KOORDINATOR}/min-available"])
            self.minimums[name] = self.minimums[name] if there else least
        found = name or annotations.get(GROUP_OF) or metadata["labels"].get(POD_GROUP)
        return found or spec.get("schedulingGroup", {}).get("podGroupName")

    def _earlier_runs(self) -> bool:
        """Return whether pods from before the last restart exist."""
        assert self.job is not None
        return any(pod.restart != self.job.status.restart_generation for pod in self.pods.values())

    def _check_charge(self, job: TorchJob) -> None:
        """Assert that the existing pods request at most the job's charge."""
        there = [self.demands[pod.uid] for pod in self.pods.values() if not pod.finished and pod.uid in self.demands]
        assert fits(reduce(add, there, dict(NOTHING)), {JOBS: 1}, demand.job_charge(job.spec))


@dataclass
class SharedRoom(GangSimulation):
    """One job and a gang that is not torchq's. The job and the gang need the same room, and the foreign gang waits for
    this room.

    Each pod takes one unit. The foreign gang always comes first, as a gang without a share does in Volcano.
    """

    room: int = 0
    waiting: int = 0
    """The number of pods of the foreign gang while it waits."""
    taken: int = 0
    """The room that the foreign gang holds."""
    fewest: int = 0
    """The least number of nodes that the job has held since it first ran."""

    def turn(self) -> None:
        """Let a second pass: nodes end and start pods, the worker reconciles, and the scheduler has a session."""
        self.pods = {name: pod for name, pod in self.pods.items() if not pod.deleting}
        self.reconcile()
        self._session()
        for name, pod in self.pods.items():
            if pod.phase == "Pending" and pod.node and not pod.gated:
                assert all(each.restart >= pod.restart for each in self.pods.values()), "the pod meets an earlier run"
                self.pods[name] = replace(pod, phase="Running")
        self.now += timedelta(seconds=1)

    def _session(self) -> None:
        free = self.room - self.taken - len(self._held())
        self.fewest = min(self.fewest, len(self._held()))
        for name in self.groups:
            self._judge(name, free)
        if self.waiting and free >= self.waiting:
            self.taken, self.waiting, free = self.waiting, 0, free - self.waiting
        pending = [name for name, pod in sorted(self.pods.items()) if not (pod.node or pod.deleting or pod.finished)]
        for name in pending:
            pod, group = self.pods[name], self.in_group.get(self.pods[name].uid)
            held = [each for each in self._held() if self.in_group.get(each.uid) == group]
            short = group is not None and len(held) + free < self._minimum(group) - pending.index(name)
            if free > 0 and not short and self.bound(pod):
                self.pods[name], free = replace(pod, node=f"n{self.room - free}"), free - 1

    def _held(self) -> list[PodView]:
        return [pod for pod in self.pods.values() if pod.node and not pod.finished]

    def _judge(self, name: str, free: int) -> None:
        """Set the phase of a group as Volcano does. A group with fewer pods than its minimum is let in anew if its
        request is at most the free room plus a fifth of all room.
        """
        view, body = self.groups[name], self.bodies[name]
        if view.resource != POD_GROUPS:
            return
        own = [pod for pod in self.pods.values() if self.in_group.get(pod.uid) == name and (pod.node or pod.finished)]
        before, asked = body.get("status", {}).get("phase", "Pending"), body["spec"].get("minResources", {})
        phase = "Running" if len(own) >= self._minimum(name) else before if before == "Inqueue" else "Pending"
        if phase == "Pending" and sum(map(int, asked.values())) <= free + self.room // 5:
            phase = "Inqueue"
        self.bodies[name] = {**body, "status": {"phase": phase}}
        self.groups[name] = self.backend.trim(self.bodies[name])
