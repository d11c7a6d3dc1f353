"""A job that grows and shrinks in the simulated cluster, with the parts of the coordinator and of the store that the
job needs.

One rule: every action is checked. No pod exists without a charge, only named victims are deleted, and no failure is
counted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from crds import labels, timestamps
from crds.torchjob.status import Scaling
from crds.torchjob.torchjob import TorchJob
from reconcilers.pods import host_file, topology
from reconcilers.pods.grants import Grant
from reconcilers.settings import ReconcileSettings
from reconcilers.values import Action, AnnotateJob, EmitEvent, WriteStatus
from reconcilers.views import pod_place, pod_view
from reconcilers.views.pod_view import PodView
from tests.support.reconcilers import builders, sizes
from tests.support.reconcilers.simulation import Simulation

POLICY = {"numMinReplicas": 1, "numMaxReplicas": 9, "mode": "InPlaceRestart", "joinTimeoutSeconds": 100}
ELASTIC: dict[str, Any] = {"torchElasticPolicy": POLICY}
"""The policy of a job whose added workers have 100 seconds to join."""


@dataclass
class Resizing(Simulation):
    """A job with workers only, and its reservation."""

    events: list[str] = field(default_factory=list)
    writes: int = 0
    starts: list[tuple[int, str]] = field(default_factory=list)
    """The starts of containers: index and place of each pod."""

    @property
    def known(self) -> TorchJob:
        """The job, which exists."""
        job = self.job
        assert job is not None
        return job

    def want(self, wish: int) -> None:
        """Change the number of workers, as the owner does."""
        assert self.manifest is not None
        self.manifest["spec"]["torchTaskSpecs"]["Worker"]["numTasks"] = wish
        self.edit()

    def suspend(self, value: bool) -> None:
        assert self.manifest is not None
        self.manifest["spec"]["suspend"] = value
        self.edit()

    def annotate(self, notes: Mapping[str, str]) -> None:
        """Change annotations of the job."""
        assert self.manifest is not None
        self.manifest["metadata"]["annotations"] |= notes
        self._touch_job()

    @property
    def notes(self) -> Mapping[str, str]:
        return self.known.metadata.annotations

    def edit(self) -> None:
        assert self.manifest is not None
        self.manifest["metadata"]["generation"] += 1
        self._touch_job()

    def _touch_job(self) -> None:
        assert self.manifest is not None
        metadata = self.manifest["metadata"]
        metadata["resourceVersion"] = str(int(metadata["resourceVersion"]) + 1)

    def give(self, size: int) -> None:
        """Commit a growth to `size` workers, if the job waits for a growth that the coordinator would offer."""
        scaling, admission, held = self.known.status.scaling, self.known.admission, self.reservation
        assert held is not None
        if scaling is None or scaling.victims or admission is None or admission.workers is None:
            return
        is_due = scaling.not_before is None or scaling.not_before <= self.now
        if is_due and admission.workers < size <= scaling.to and held.grown == admission.grown:
            self.reservation = replace(held, size=size, charge=sizes.charge(size), grown=held.grown + 1)

    def aim(
        self, workers: int | None, reason: str = "Idle", message: str = "for other/next", victims: Sequence[str] = ()
    ) -> None:
        """Write the size that the coordinator has decided on. None means that the coordinator wants no other size any
        more.
        """
        assert self.manifest is not None
        wish, since = self.known.spec.worker_count, timestamps.format_time(self.now.timestamp())
        target = {"workers": workers, "reason": reason, "message": message, "since": since, "wish": wish}
        target["victims"] = [*victims]
        self.manifest["status"]["target"] = target if workers is not None else None
        self._touch_job()

    def grow_idle(self, size: int) -> None:
        """Grant idle growth, as the coordinator does after it has written the target."""
        self.aim(size)
        held = self.reservation
        assert held is not None
        idle = held.idle + size - held.size
        self.reservation = replace(held, size=size, charge=sizes.charge(size), grown=held.grown + 1, idle=idle)

    def pay(self, count: int) -> None:
        """Commit the payment for idle workers that the owner wants now."""
        held = self.reservation
        assert held is not None
        assert count <= held.idle
        self.reservation = replace(held, grown=held.grown + 1, idle=held.idle - count)

    def revoke(self, size: int) -> None:
        """Take back the room of workers without pods, as a rebuild does."""
        held = self.reservation
        assert held is not None
        if len(self.occupying) <= size < held.size:
            self.reservation = replace(held, size=size, charge=sizes.charge(size))

    def lower(self) -> None:
        """Free the charge beyond the admission, as the coordinator does."""
        held, admission = self.reservation, self.known.admission
        if held is None or admission is None or admission.workers is None or held.grown != admission.grown:
            return
        if len(self.occupying) <= admission.workers < held.size:
            idle = max(0, held.idle - (held.size - admission.workers))
            self.reservation = replace(held, size=admission.workers, charge=admission.charge, idle=idle)

    @property
    def occupying(self) -> list[PodView]:
        return [pod for pod in self.pods.values() if pod_view.occupies(pod)]

    def run(self, *indexes: int) -> None:
        """Let the waiting pods of these workers start, or all waiting pods. The pods run, or reach their start gate."""
        for pod in list(self.pods.values()):
            if pod.phase != "Pending" or pod.deleting or (indexes and pod.index not in indexes):
                continue
            if pod.gated:
                self.pods[pod.name] = replace(pod, node=self._node(pod.index), shut_since=self.now.timestamp())
            else:
                self._start(replace(pod, phase="Running", node=self._node(pod.index)))

    def _node(self, index: int) -> str:
        """Return the node of a worker. Where nodes have labels, the workers take turns on them."""
        names = sorted(self.node_labels) or ["n1"]
        return names[index % len(names)]

    def serve(self) -> None:
        """Do the node's own work: let pods through their open gates, and restart containers in place."""
        for pod in list(self.pods.values()):
            if pod.phase == "Pending" and pod.node and not (pod.gated or pod.deleting):
                self._start(replace(pod, phase="Running"))
            elif pod.started and pod.requested_restart != pod.completed_restart:
                again = pod.restarts + pod.has_restart_agent
                self._start(replace(pod, completed_restart=pod.requested_restart, restarts=again))

    def _start(self, pod: PodView) -> None:
        """Start the containers of a pod. The containers then know the place of the pod."""
        self.pods[pod.name] = pod
        self.starts.append((pod.index, pod.place))
        number = str(self.known.status.restart_generation)
        if pod.place.rpartition("-")[2] == number:
            others = (each for each in self.pods.values() if each.place and not (each.deleting or each.finished))
            assert {each.place.rpartition("-")[2] for each in others} == {number}, "places are written first"
            assert pod.hosts in self.hosts_of(pod), "host files are written first"

    def hosts_of(self, pod: PodView) -> set[str]:
        """Return the digest that the host file of a pod should have now. Where ranks follow from nodes, any list will
        do while a pod is not bound."""
        job, admission = self.known, self.known.admission
        assert admission is not None
        grant, pods = Grant(job, admission), tuple(self.pods.values())
        members = topology.rank(grant.job, admission, grant.members, pods, self.node_labels)
        contents = host_file.texts(grant.job, admission, members.values())
        found = {pod_place.hosts_digest({labels.HOSTS: contents[members[pod.name].stage]})}
        bound = {each.name for each in pods if each.node}
        is_known = not admission.topology or all(name in bound for name, each in members.items() if not each.joins)
        return found if is_known else {*found, pod.hosts}

    def end(self) -> None:
        """Let the pods end that are being deleted."""
        self.pods = {name: pod for name, pod in self.pods.items() if not pod.deleting}

    def work(self) -> None:
        """Reconcile until nothing is left to do now."""
        for _ in range(200):
            if not self.reconcile():
                return
            self.serve()
        raise AssertionError(f"no end to it: {self.plan()}")

    def indexes(self) -> list[int]:
        """Return the indexes of the existing workers."""
        return sorted(pod.index for pod in self.pods.values())

    def carry_out(self, action: Action) -> None:
        match action:
            case EmitEvent(reason, message):
                self.events.append(f"{reason}: {message}")
            case WriteStatus():
                self.writes += 1
            case AnnotateJob(annotations):
                self.annotate(annotations)
        super().carry_out(action)

    def _create(self, manifest: Any) -> None:
        super()._create(manifest)
        job, held = self.known, self.reservation
        assert job.admission is not None
        assert held is not None
        assert manifest["metadata"]["name"] in Grant(job, job.admission).members, "pods are created after the grant"
        assert manifest["metadata"]["labels"][labels.RESTART] == str(job.status.restart_generation)
        assert len(self.occupying) <= held.size, "there is a pod for which no charge exists"
        if self.settings.in_place == "auto":
            self.add_agents()

    def add_agents(self) -> None:
        """Give each pod a restart agent, as pods are made with the setting `auto`."""
        self.pods = {name: replace(pod, has_restart_agent=True) for name, pod in self.pods.items()}

    def _may_go(self, pod: PodView) -> bool:
        """Return whether the pod may be deleted: a granted worker may be deleted only if the status names it as a
        victim, or counts its failure.
        """
        job = self.known
        scaling, admission = job.status.scaling, job.admission
        if scaling is not None and pod.name in scaling.victims:
            return True
        member = None if admission is None else Grant(job, admission).members.get(pod.name)
        is_granted = member is not None and member.is_labelled(pod)
        return not is_granted or super()._may_go(pod)


LOCAL = ReconcileSettings(in_place="local")
"""The settings where the node restarts containers in place."""


def running_workers(size: int) -> dict[str, PodView]:
    """Return the pods of a static world of workers. All of them run."""
    places = [f"{index} {size} {builders.UID}-0" for index in range(size)]
    hosts = pod_place.hosts_digest({labels.HOSTS: "".join(f"digits-worker-{each} slots=1\n" for each in range(size))})
    pods = [builders.pod("Worker", index, node="n1", place=place, hosts=hosts) for index, place in enumerate(places)]
    return {pod.name: pod for pod in pods}


def resizing(
    wish: int, size: int | None = None, racks: Mapping[str, Mapping[str, str]] | None = None, **spec: Any
) -> Resizing:
    """Return a job whose workers all run. With `racks`, the labels of nodes, ranks follow from these labels."""
    size = size or wish
    status = sizes.granted("Running", size, wish)
    status["admission"] |= {"topology": ["rack"]} if racks else {}
    running = builders.manifest({"Worker": builders.task(wish)}, status, **spec)
    found = Resizing(running, running_workers(size), sizes.held(size), LOCAL, node_labels=racks or {})
    found.work()
    found.writes = 0
    return found


def grant_of(job: Resizing) -> tuple[int, str | None, int]:
    """Return the granted number of workers, their indexes, and the number of growths."""
    admission = job.known.admission
    assert admission is not None
    assert admission.workers is not None
    assert admission.grown is not None
    assert admission.charge == sizes.charge(admission.workers)
    return admission.workers, admission.indexes, admission.grown


def scaling(job: Resizing) -> Scaling | None:
    """Return the change under way, or None."""
    return job.known.status.scaling


def change(job: Resizing) -> Scaling:
    """Return the change under way."""
    found = scaling(job)
    assert found is not None
    return found


def counts(job: Resizing) -> tuple[Any, ...]:
    """Return the parts of the status that a resize leaves unchanged."""
    found = job.known.status
    numbers = (found.restart_count, found.disruptions, found.attempt)
    return found.phase, found.start_time, numbers


def fail(job: Resizing, index: int, **how: Any) -> None:
    """Let a worker end by itself."""
    name = f"digits-worker-{index}"
    job.pods[name] = replace(job.pods[name], **({"phase": "Failed", "exit_code": 137, "reason": "OOMKilled"} | how))
