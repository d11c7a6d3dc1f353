"""The nodes and the schedulers of a simulation: they bind and run pods, and end them as the scenario says.

One rule: a pod ends by itself only when its job is Running and the scenario permits it, and a master ends last, so that
every run has the same end. Each end has the steps of a kubelet: the containers, the phase, the removal of a pod that is
being deleted. A pod that is asked to stop exits 0, as a trainer does that saves first. A gang scheduler binds all pods
of a group or none. A gated pod runs once its gate is open. Pods on a silent node do not change.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import orjson

from crds import labels, timestamps
from crds.api_resources import NODES, POD_GROUPS, PODS, TORCHJOBS
from crds.node_requirements import REQUIRED, meets_affinity
from embedded.apiserver.storage.objects import StoredObject
from kube.api import Manifest
from kube.requests import Request
from reconcilers.views.containers import GATE, RESTART_AGENT
from tests.faults.api import Api, ApiClient
from tests.faults.report_port import ReportPort
from tests.faults.scenarios.scenario import NAMESPACE, Scenario

GROUP_NAME = "scheduling.k8s.io/group-name"
GANG_SCHEDULER = "volcano"
OUT_OF_MEMORY = "OOMKilled"
ALL = "RestartingAllContainers"
PREEMPTED = "Preempted"
"""The fate of a pod that its node asks to stop: it exits 0, and only its last status tells that the node asked it to
stop.
"""
REMOVAL_SECONDS = 1.0
"""The seconds from the end of a container to the removal of its pod, which tell the end from the node's own request."""
Place = tuple[str, str, int]
"""The place of a pod: the uid of its job, its task, and its index."""


class Pod:
    """A pod, as its node reads it from the API."""

    def __init__(self, manifest: Manifest) -> None:
        metadata, spec, status = manifest["metadata"], manifest["spec"], manifest.get("status") or {}
        marks, notes = metadata["labels"], metadata.get("annotations") or {}
        conditions = {each["type"]: each for each in status.get("conditions") or ()}
        self.job_name = marks.get(labels.JOB_NAME, "")
        self.name, self.namespace, self.uid = metadata["name"], metadata["namespace"], metadata["uid"]
        self.job = marks[labels.JOB_UID]
        self.task, self.index = marks[labels.TASK_TYPE], int(marks[labels.TASK_INDEX])
        self.attempt = int(marks[labels.ATTEMPT])
        self.place: Place = (self.job, self.task, self.index)
        affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
        self.required = affinity.get(REQUIRED)
        """The required node affinity; None if the pod may run anywhere."""
        self.phase = status.get("phase") or "Pending"
        self.node = spec.get("nodeName") or ""
        self.deleting = "deletionTimestamp" in metadata
        self.group = notes.get(GROUP_NAME, "") if spec.get("schedulerName") == GANG_SCHEDULER else ""
        self.single = not self.group
        has_gate = any(each["name"] == GATE for each in spec.get("initContainers") or ())
        self.gated = has_gate and not notes.get(labels.START)
        self.meets = labels.RENDEZVOUS_ID in notes or (has_gate and self.single)
        """Whether the pod starts together with others, so that the time at which it reaches its gate matters."""
        self.arrived: str = arrival(status)
        """The time at which the pod reached its gate; empty before."""
        self.asked = notes.get(labels.RESTART_CONTAINERS, "")
        self.agent = _state_of(RESTART_AGENT, status.get("initContainerStatuses") or ())
        """The state of the restart agent of the pod. The state is empty if the pod has no agent, or if the agent does
        not run yet.
        """
        self.has_agent = any(each["name"] == RESTART_AGENT for each in spec.get("initContainers") or ())
        self.restarted = conditions.get(labels.CONTAINERS_RESTARTED, {}).get("message", "")
        self.restarts = sum(each.get("restartCount", 0) for each in status.get("containerStatuses") or ())
        self.over = self.phase in ("Succeeded", "Failed")
        states = [each["state"] for each in status.get("containerStatuses") or ()]
        end: Mapping[str, Any] = next((each["terminated"] for each in states if "terminated" in each), {})
        self.code: int | None = end.get("exitCode")
        """The exit code of the main container, once this container has ended."""
        self.ended = timestamps.seconds_or_none(end.get("finishedAt")) or 0.0

    @property
    def life(self) -> tuple[str, int]:
        """The uid of the pod, and how often its containers were restarted. After each restart, its program begins
        anew.
        """
        return self.uid, self.restarts


class Node:
    """The kubelets and schedulers of all nodes."""

    def __init__(
        self,
        api: Api,
        client: ApiClient,
        scenario: Scenario,
        may_end: Callable[[str], bool],
        port: ReportPort,
        reported: Callable[[str], object],
    ) -> None:
        """`may_end(uid)` returns whether the pods of a running job may end by themselves now. `port` takes the reports
        of pods; `reported` is called with the uid of the reporting job.
        """
        self._api, self._client, self._scenario, self._may_end = api, client, scenario, may_end
        self._port, self._reported = port, reported
        self._steps: Counter[tuple[str, int]] = Counter()
        """The steps that the program of a pod has made since the program began (`Pod.life`)."""
        self._stepped: dict[tuple[str, int], float] = {}
        """The time at which the program of a pod began, or made its last step."""
        self._read: dict[bytes, Any] = {}
        self._failed: Counter[Place] = Counter()
        self._ends: dict[str, int | str | None] = {}
        """How the pods end whose containers have ended, by uid: their fate, or None for pods that were asked to end."""
        self._made: dict[Place, list[str]] = {}
        """The uids of the pods at each place, in the order in which they were made."""
        self._taken: dict[str, str] = {}
        """The annotation that the restart agent of a pod found when it began, by uid."""
        self._at = -1
        self._waits = False
        """Whether a pod is removed later."""
        self._acts: list[Any] = []

    def acts(self) -> list[Any]:
        """Return the possible next actions of nodes and schedulers."""
        if self._at != self._api.revision or self._waits or self._scenario.sizes or self._scenario.reports:
            self._at, self._acts = self._api.revision, list(self._found())
        return self._acts

    def _found(self) -> Iterator[Any]:
        jobs = {each.uid: self._manifest(each) for each in self._api.objects(TORCHJOBS)}
        pods = [self._pod(each) for each in self._api.objects(PODS) if each.namespace == NAMESPACE]
        nodes = {each.name: self._manifest(each) for each in self._api.objects(NODES)}
        ready = [name for name, node in nodes.items() if _is_ready(node)]
        takes_pods = [name for name in ready if _is_open(nodes[name])]
        done = {each.place for each in pods if self._ends.get(each.uid) == 0}
        busy = {uid for uid, job in jobs.items() if not done.issuperset(self._first_to_end(uid, job))}
        running = self._running(jobs)
        self._waits = any(pod.deleting for pod in pods)
        for pod in pods:
            if not pod.node or pod.node in ready:
                may_end = pod.job in running and (pod.task != "master" or pod.job not in busy)
                allowed = [name for name in takes_pods if _is_allowed(pod, nodes[name])]
                yield from self._about(pod, allowed, may_end and self._has_trained(pod))
                yield from self._training(pod, jobs.get(pod.job))
        if self._api.serves(POD_GROUPS):
            for group in self._api.objects(POD_GROUPS):
                yield from self._group(self._manifest(group), pods, takes_pods)

    def _running(self, jobs: Mapping[str, Any]) -> frozenset[str]:
        """Return the uids of the running jobs, or no uids as long as the scenario lets no pod end."""
        by_name = {job["metadata"]["name"]: job for job in jobs.values()}
        phases = {uid: (job.get("status") or {}).get("phase") for uid, job in jobs.items()}
        if not self._scenario.until(by_name):
            return frozenset()
        return frozenset(uid for uid, phase in phases.items() if phase == "Running" and self._may_end(uid))

    def _about(self, pod: Pod, ready: list[str], may_end: bool) -> Iterator[Any]:
        """Yield the possible actions of the node that runs a pod."""
        if pod.code is not None and not pod.over:
            yield partial(self._end_agent if pod.agent == "running" else self._conclude, pod)
        elif pod.deleting and pod.node and not pod.over:
            yield partial(self._stop, pod) if pod.phase == "Running" else partial(self._give_up, pod)
        elif pod.deleting and self._client.now >= pod.ended + REMOVAL_SECONDS:
            yield partial(self._remove, pod)
        elif pod.phase == "Pending":
            yield from self._start(pod, ready)
        elif pod.phase == "Running" and pod.agent in ("terminated", "waiting"):
            yield partial(self._stop_all if pod.agent == "terminated" else self._start_all, pod)
        elif pod.phase == "Running" and self._is_asked(pod):
            yield partial(self._exit_agent if pod.has_agent else self._restart, pod)
        elif pod.phase == "Running" and may_end:
            yield from self._ending(pod)

    def _is_asked(self, pod: Pod) -> bool:
        return pod.asked not in ("", self._taken.get(pod.uid, "") if pod.has_agent else pod.restarted)

    def _start(self, pod: Pod, ready: list[str]) -> Iterator[Any]:
        if pod.attempt <= self._scenario.stuck or self._scenario.stalls(pod.task, pod.index, self._before(pod)):
            return
        node = pod.node or (self._scenario.place(pod.task, pod.index, ready) if pod.single and ready else "")
        if node and not pod.gated:
            yield partial(self._run, pod, node)
        elif node and pod.meets and not pod.arrived:
            yield partial(self._reach_gate, pod, node)

    def _before(self, pod: Pod) -> int:
        """Return how many pods had the place of this pod before."""
        found = self._made.setdefault(pod.place, [])
        if pod.uid not in found:
            found.append(pod.uid)
        return found.index(pod.uid)

    def _reach_gate(self, pod: Pod, node: str) -> str:
        if not pod.node:
            self._bind(pod, node)
        gate = _container(GATE, 0, {"running": {"startedAt": timestamps.format_time(self._client.now)}})
        self._status(pod, {"phase": "Pending", "initContainerStatuses": [*self._begin_agent(pod), gate]})
        return f"{pod.name} is at its gate"

    def _ending(self, pod: Pod) -> Iterator[Any]:
        fate = self._fate(pod.place)
        if fate is not None and pod.node != self._scenario.bad_node:
            yield partial(self._end, pod, fate)

    def _has_trained(self, pod: Pod) -> bool:
        """Return whether a pod has made the number of steps before which it does not end."""
        return pod.job_name not in self._scenario.reports or self._steps[pod.life] >= self._scenario.least_steps

    def _training(self, pod: Pod, job: Mapping[str, Any] | None) -> Iterator[Any]:
        """Yield the next step of a running pod whose job reports its steps, once it is due."""
        seconds = self._scenario.reports.get(pod.job_name, 0.0)
        if not seconds or job is None or pod.phase != "Running" or pod.deleting:
            return
        restarts = (job.get("status") or {}).get("restartCount", 0)
        stands = self._scenario.stands(pod.task, pod.index, restarts, self._steps[pod.life])
        if self._client.now >= self._stepped.setdefault(pod.life, self._client.now) + seconds and not stands:
            yield partial(self._step, pod)

    def _step(self, pod: Pod) -> str:
        self._steps[pod.life] += 1
        self._stepped[pod.life] = self._client.now
        step = self._steps[pod.life]
        if self._port.send(pod.job_name, pod.name, step, pod.job):
            self._reported(pod.job)
        self._forge(pod, step)
        return f"{pod.name} reports step {step}"

    def _forge(self, pod: Pod, step: int) -> None:
        """Report in the name of all pods of another job, with the pod's own token."""
        victim = self._scenario.forged
        if victim and pod.job_name != victim:
            for other in map(self._pod, self._api.objects(PODS)):
                if other.job_name == victim:
                    self._port.send(victim, other.name, 1_000 + step, pod.job)

    def _group(self, group: Manifest, pods: Iterable[Pod], ready: list[str]) -> Iterator[Any]:
        """Yield the possible actions of Volcano for a pod group, no matter which owner it has."""
        metadata, phase = group["metadata"], (group.get("status") or {}).get("phase") or "Pending"
        if metadata["namespace"] != NAMESPACE or "deletionTimestamp" in metadata:
            return
        if phase == "Pending":
            marks = metadata.get("labels") or {}
            if (marks.get(labels.JOB_NAME), marks.get(labels.ATTEMPT)) != (self._scenario.refused, "1"):
                yield partial(self._phase, metadata["name"], "Inqueue")
            return
        members = [pod for pod in pods if pod.group == metadata["name"] and pod.attempt > self._scenario.stuck]
        bound = sum(bool(pod.node) and pod.phase != "Failed" for pod in members)
        waiting = [pod for pod in members if not (pod.node or pod.deleting or pod.over)]
        enough = bound + len(waiting) >= group["spec"].get("minMember", 0)
        if waiting and enough and ready:
            yield partial(self._bind_all, waiting, ready[0])
        elif bound and enough and phase == "Inqueue":
            yield partial(self._phase, metadata["name"], "Running")

    def _first_to_end(self, uid: str, job: Mapping[str, Any]) -> Iterator[Place]:
        """Yield the places of a job whose pods end by themselves before the master ends, including pods that were not
        made yet.
        """
        for task_type, task in job["spec"]["torchTaskSpecs"].items():
            for index in range(task["numTasks"] if task_type != "Master" else 0):
                place = (uid, task_type.lower(), index)
                if self._fate(place) is not None:
                    yield place

    def _fate(self, place: Place) -> int | str | None:
        return self._scenario.fate(*place[1:], self._failed[place])

    def _manifest(self, stored: StoredObject) -> Mapping[str, Any]:
        if stored.raw not in self._read:
            self._read[stored.raw] = orjson.loads(stored.raw)
        return self._read[stored.raw]  # type: ignore[no-any-return]

    def _pod(self, stored: StoredObject) -> Pod:
        if stored.raw not in self._read:
            self._read[stored.raw] = Pod(orjson.loads(stored.raw))
        return self._read[stored.raw]  # type: ignore[no-any-return]

    def _remove(self, pod: Pod) -> str:
        self._client.delete(PODS, pod.name, pod.namespace, grace_period_seconds=0)
        return f"{pod.name} is removed"

    def _run(self, pod: Pod, node: str) -> str:
        if not pod.node:
            self._bind(pod, node)
        when = {"startedAt": timestamps.format_time(self._client.now)}
        status: dict[str, Any] = {"phase": "Running", "containerStatuses": [_container("torch", 0, {"running": when})]}
        through = {"startedAt": pod.arrived, "exitCode": 0, "reason": "Completed"}
        gate = [_container(GATE, 0, {"terminated": through})] if pod.arrived else []
        return self._status(pod, {**status, "initContainerStatuses": [*self._begin_agent(pod), *gate]})

    def _begin_agent(self, pod: Pod, restarts: int = 0) -> list[Manifest]:
        """Return the status of a restart agent that begins. The agent records the present value of the annotation."""
        self._taken.setdefault(pod.uid, pod.asked)
        return [_container(RESTART_AGENT, restarts, {"running": {}})] if pod.has_agent else []

    def _exit_agent(self, pod: Pod) -> str:
        """End the restart agent of a pod, whose rule restarts all containers."""
        agent = _container(RESTART_AGENT, pod.restarts, {"terminated": {"exitCode": 88, "reason": "Error"}})
        self._status(pod, {"phase": "Running", "initContainerStatuses": [agent]})
        return f"the agent of {pod.name} exits for {pod.asked}"

    def _stop_all(self, pod: Pod) -> str:
        """End all containers of a pod in order to start them again, and count the restart."""
        killed = {
            "terminated": {"exitCode": 137, "reason": ALL, "finishedAt": timestamps.format_time(self._client.now)}
        }
        agent, main = (
            _container(name, pod.restarts + 1, {"waiting": {"reason": ALL}}) | {"lastState": killed}
            for name in (RESTART_AGENT, "torch")
        )
        self._status(pod, {"phase": "Running", "initContainerStatuses": [agent], "containerStatuses": [main]})
        return f"{pod.name} restarts all containers"

    def _start_all(self, pod: Pod) -> str:
        self._taken.pop(pod.uid, None)
        agent, main = self._begin_agent(pod, pod.restarts), _container("torch", pod.restarts, {"running": {}})
        self._status(pod, {"phase": "Running", "initContainerStatuses": agent, "containerStatuses": [main]})
        return f"all containers of {pod.name} run again"

    def _bind_all(self, pods: list[Pod], node: str) -> str:
        for pod in pods:
            self._bind(pod, node)
        return f"{', '.join(pod.name for pod in pods)} bound"

    def _bind(self, pod: Pod, node: str) -> None:
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod.name}, "target": target}
        path = PODS.path(pod.namespace, pod.name, "binding")
        self._api.send(Request("POST", path, "bind a pod", orjson.dumps(body)))

    def _phase(self, name: str, phase: str) -> str:
        """Write the phase of a group into the object, as Volcano does: the status of a group has no subresource."""
        self._client.patch(POD_GROUPS, name, {"status": {"phase": phase}}, NAMESPACE)
        return f"group {name} {phase}"

    def _restart(self, pod: Pod) -> str:
        done = {"type": labels.CONTAINERS_RESTARTED, "status": "True", "reason": "Restarted", "message": pod.asked}
        main = _container("torch", pod.restarts + 1, {"running": {}})
        self._status(pod, {"phase": "Running", "conditions": [done], "containerStatuses": [main]})
        return f"{pod.name} restarts its containers for {pod.asked}"

    def _end(self, pod: Pod, fate: int | str) -> str:
        """End the container of a pod: by itself, or because its node evicts the pod."""
        self._failed[pod.place] += fate != 0
        if fate == OUT_OF_MEMORY:
            return self._terminate(pod, fate, 137, OUT_OF_MEMORY)
        code = 0 if fate == PREEMPTED else 137 if isinstance(fate, str) else fate
        return self._terminate(pod, fate, code, "Error" if code else "Completed")

    def _stop(self, pod: Pod) -> str:
        """End the container of a pod that is being deleted."""
        return self._terminate(pod, None, 0, "Completed")

    def _terminate(self, pod: Pod, fate: int | str | None, code: int, reason: str) -> str:
        when = timestamps.format_time(self._client.now)
        state = {"terminated": {"exitCode": code, "reason": reason, "finishedAt": when}}
        main = _container("torch", pod.restarts, state)
        told = self._status(pod, {"phase": pod.phase, "containerStatuses": [main]})
        self._ends[pod.uid] = fate
        return f"{told}, its container has ended with {code}"

    def _end_agent(self, pod: Pod) -> str:
        """End the restart agent of a pod after its main container."""
        agent = _container(RESTART_AGENT, pod.restarts, {"terminated": {"exitCode": 0, "reason": "Completed"}})
        self._status(pod, {"phase": pod.phase, "initContainerStatuses": [agent]})
        return f"the agent of {pod.name} has ended"

    def _conclude(self, pod: Pod) -> str:
        """Write the last phase of a pod whose container has ended."""
        phase, fate = "Failed" if pod.code else "Succeeded", self._ends[pod.uid]
        if not isinstance(fate, str) or fate == OUT_OF_MEMORY:
            return self._status(pod, {"phase": phase})
        target = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}
        target["lastTransitionTime"] = timestamps.format_time(self._client.now)
        reason = {"reason": fate} if pod.code else {}
        return self._status(pod, {"phase": phase, "conditions": [target], **reason})

    def _give_up(self, pod: Pod) -> str:
        """Write the last phase of a pod that is being deleted before it has run."""
        return self._status(pod, {"phase": "Failed"})

    def _status(self, pod: Pod, status: Any) -> str:
        self._client.patch(PODS, pod.name, {"status": status}, pod.namespace, subresource="status")
        return f"{pod.name} {status.get('reason') or status['phase']}"


def arrival(status: Mapping[str, Any]) -> str:
    """Return when a pod reached its start gate; empty before this time."""
    gates = [each["state"] for each in status.get("initContainerStatuses") or () if each["name"] == GATE]
    return next((each["startedAt"] for state in gates for each in state.values()), "")


def _state_of(name: str, statuses: Iterable[Mapping[str, Any]]) -> str:
    return next((state for each in statuses if each["name"] == name for state in each["state"]), "")


def _container(name: str, restarts: int, state: Mapping[str, Any]) -> Manifest:
    return {"name": name, "restartCount": restarts, "state": state}


def _is_allowed(pod: Pod, node: Manifest) -> bool:
    """Return whether the required node affinity of a pod allows a node."""
    metadata = node["metadata"]
    return pod.required is None or meets_affinity(pod.required, metadata["name"], metadata.get("labels") or {})


def _is_ready(node: Mapping[str, Any]) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _is_open(node: Mapping[str, Any]) -> bool:
    spec = node.get("spec") or {}
    return not spec.get("unschedulable") and not spec.get("taints")
