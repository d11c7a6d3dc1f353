"""A cluster in memory that holds one job and plays API server, node and coordinator by hand.

One rule: it takes nothing that a real API server would refuse, and asserts what must never be asked of one.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from crds import labels, torchjob
from crds.conditions import TRUE_IN
from crds.torchjob import TorchJob
from queues.values import Reservation
from reconcilers.plan import plan
from reconcilers.pod_view import PodView
from reconcilers.settings import ReconcileSettings
from reconcilers.values import Action, CreatePods, DeleteJob, DeletePods, Observation, Plan, WriteStatus
from tests.reconcilers import builders


@dataclass
class Simulation:
    """One job, its pods and its reservation."""

    manifest: dict[str, Any] | None
    pods: dict[str, PodView] = field(default_factory=dict)
    reservation: Reservation | None = None
    settings: ReconcileSettings = field(default_factory=ReconcileSettings)
    made: int = 0
    counted: set[str] = field(default_factory=set)
    """The failed pods that have cost the job a restart."""

    @property
    def job(self) -> TorchJob | None:
        return torchjob.parse(self.manifest) if self.manifest else None

    def plan(self) -> Plan:
        pods = tuple(sorted(self.pods.values(), key=lambda pod: pod.name))
        observation = Observation(key=builders.KEY, job=self.job, pods=pods, reservation=self.reservation)
        return plan(observation, self.settings, builders.NOW)

    def reconcile(self, most: int = 100) -> bool:
        """Plan, and carry out the first few actions; whether there was anything to do."""
        planned = self.plan()
        for action in planned.actions[:most]:
            self.carry_out(action)
        return bool(planned.actions)

    def settle(self) -> None:
        """Reconcile until nothing is left to do. What is deleted goes away; nothing else happens."""
        for _ in range(20):
            self.pods = {name: pod for name, pod in self.pods.items() if not pod.deleting}
            if not self.reconcile():
                return
        raise AssertionError(f"no end to it: {self.plan()}")

    def carry_out(self, action: Action) -> None:
        match action:
            case WriteStatus(change, resource_version):
                self._write(change["status"], resource_version)
            case DeletePods(pods):
                for pod in pods:
                    assert self.pods[pod.name].uid == pod.uid
                    assert not pod.deleting, "deleted twice"
                    self.pods[pod.name] = replace(pod, deleting=True)
            case CreatePods(manifests):
                for manifest in manifests:
                    self._create(manifest)
            case DeleteJob():
                assert self.job is not None
                assert self.job.finished
                self.manifest = None

    def _write(self, change: Mapping[str, Any], resource_version: str) -> None:
        before = self.job
        assert before is not None
        assert before.metadata.resource_version == resource_version
        assert "queue" not in change, "the coordinator's field"
        assert self.manifest is not None
        self.manifest["status"] = merged(self.manifest["status"], change)
        self.manifest["metadata"]["resourceVersion"] = str(int(resource_version) + 1)
        after = self.job
        assert after is not None
        assert not before.finished, "nothing follows the end"
        assert set(TRUE_IN[after.status.phase]) == {
            each.type for each in after.status.conditions if each.status == "True"
        }
        self._count(before, after)

    def _count(self, before: TorchJob, after: TorchJob) -> None:
        more = after.status.restart_count - before.status.restart_count
        assert more in (0, 1)
        if more:
            failed = {pod.uid for pod in self.pods.values() if pod.phase == "Failed"}
            assert failed - self.counted, "a failure was counted twice"
            self.counted |= failed

    def _create(self, manifest: Mapping[str, Any]) -> None:
        job = self.job
        assert job is not None
        assert not job.finished
        assert not job.spec.suspend
        assert job.admission is not None, "a pod without an admission"
        assert self.reservation is not None
        assert manifest["metadata"]["labels"][labels.ATTEMPT] == str(job.admission.attempt)
        assert job.admission.attempt == self.reservation.attempt
        name = manifest["metadata"]["name"]
        assert name not in self.pods, "the name is taken"
        self.made += 1
        self.pods[name] = builders.view(manifest, uid=f"made-{self.made}")


def merged(target: Any, change: Any) -> Any:
    """RFC 7386."""
    if not isinstance(change, Mapping):
        return copy.deepcopy(change)
    result = dict(target) if isinstance(target, Mapping) else {}
    for name, value in change.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result
