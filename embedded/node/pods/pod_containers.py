"""The containers of one pod: their runs, the starts and ends of these runs, and their restarts in place.

One rule: a restart in place is on disk before the first container is sent SIGTERM. So the next node process continues
it and does no restart twice.
"""

import json
import logging
from collections.abc import Hashable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

from crds.torchjob import demand
from embedded import config_sources, log_times, pod_requirements
from embedded.config_sources import ConfigKey, ConfigObjects, NotReady
from embedded.layout import Layout
from embedded.node.pods import container_environment
from embedded.node.pods.config_reader import PodObjects
from embedded.node.pods.container_environment import ContainerContext
from embedded.node.pods.failed_output import taken_port
from embedded.node.pods.node_context import NodeContext
from embedded.node.pods.volumes import Volumes
from embedded.node.resources import devices
from embedded.node.resources.machine import GPU
from embedded.node.resources.memory_watch import WatchedContainer, WatchedPod
from embedded.node.resources.port_watch import NetworkedPod
from embedded.node.runs import container_processes, shim
from embedded.node.runs.container_runs import MESSAGE, Order, Run, RunKey
from embedded.node.status import pod_lifecycle
from embedded.node.status.pod_lifecycle import (
    Action,
    Containers,
    KillContainer,
    Restart,
    StartContainer,
    TerminateContainer,
)
from embedded.node.status.pod_status import StartProblem
from embedded.pod import FINISHED, LocalPod

logger = logging.getLogger(__name__)

_RESTART_FILE = "restart"
_CONFIG_ERROR = "CreateContainerConfigError"
"""The reason of a container whose variables refer to what does not exist, as in the kubelet."""
_VOLUMES = "volumes"
"""The step in which the pod's volumes are set up."""
_CHECK_SECONDS = 2.0
"""The interval of syncs of a running pod without changed files: its shims may have been killed."""
_OBJECT_SECONDS = 0.5
"""The interval of syncs of a pod that waits for a ConfigMap or Secret. Not each of them reads the object."""
_ANSWER_SECONDS = 0.02
"""The interval of syncs of a pod whose container starts as soon as the API server answers."""


class PodContainers:
    """The containers of one pod."""

    def __init__(self, pod: LocalPod, context: NodeContext, signalled: frozenset[tuple[str, int]]) -> None:
        self._context = context
        self._uid = pod.uid
        self._volumes = Volumes(context.layout, pod)
        self._volumes_are_ready = False
        self._objects = PodObjects(context.config_reader)
        restart = read_restart(context.layout, pod.uid)
        self.spec: Containers = replace(pod_lifecycle.containers(pod.spec, context.backoff), restart=restart)
        self.histories: dict[str, tuple[Run, ...]] = {name: () for name in self.spec.all}
        """The runs of each container, as of the last `observe`."""
        self.signalled = signalled
        """Container and restart of the runs that were sent SIGTERM."""
        self.forget_problems()
        self._log_lengths: dict[tuple[str, int], int] = {}
        self._holders: dict[int, str] = {}
        """Who had the ports that containers could not use, when they ended."""

    def forget_problems(self) -> None:
        """Forget the reason that kept containers from starting: the next attempt shows the reason anew."""
        self.start_problems: dict[str, StartProblem] = {}
        """The reason why a container that is to start cannot start yet, by its name."""
        self.volume_problem = ""
        """What the pod's volumes wait for; empty if they are set up."""
        self.awaits_answer = False
        """Whether a container starts as soon as the API server has answered."""

    def check_seconds(self) -> float:
        """Return the time after which the pod is synced in any case; infinity if only the API server changes it."""
        if self.awaits_answer:
            return _ANSWER_SECONDS
        if self.volume_problem or any(problem.reason == _CONFIG_ERROR for problem in self.start_problems.values()):
            return _OBJECT_SECONDS
        return _CHECK_SECONDS if self.start_problems or self.alive_runs() else float("inf")

    def observe(self) -> None:
        """Read the runs' folders."""
        runs = self._context.runs
        self.histories = {name: runs.history(self._uid, name, history) for name, history in self.histories.items()}

    def alive_runs(self) -> list[tuple[str, Run]]:
        """Return the containers that run, or are about to, with their runs."""
        return [(name, history[-1]) for name, history in self.histories.items() if history and history[-1].alive]

    def have_changed(self) -> bool:
        """Return whether a run has begun or ended since the last `observe`."""
        return any(self._context.runs.has_changed(self._key(name, run.restart), run) for name, run in self.alive_runs())

    def have_run(self) -> bool:
        """Return whether any container of the pod has run."""
        return any(self.histories.values())

    def has_ended(self) -> bool:
        """Return whether the pod has ended by itself, for good."""
        return pod_lifecycle.outcome(self.spec, self.histories) in FINISHED

    def note_log_lengths(self, now: float) -> None:
        """Record how long the logs of the containers that run are at this moment."""
        for name, run in self.alive_runs():
            length = self._log_lengths.get((name, run.restart), 0)
            folder = self._context.runs.folder(self._key(name, run.restart))
            self._log_lengths[name, run.restart] = log_times.note(str(folder), now, length)

    def watch_memory(self, pod: LocalPod) -> None:
        """Pass the containers that run, with their memory limits, to the memory watch."""
        limits = {container["name"]: _memory_limit(container) for container in pod.containers}
        running = tuple(
            WatchedContainer(self._key(name, run.restart), run.process, limits[name])
            for name, run in self.alive_runs()
            if run.process is not None
        )
        self._context.memory.watch(self._uid, WatchedPod(running, _memory_limit(pod.spec)))

    def watch_ports(self, pod: LocalPod) -> None:
        """Pass the containers that run to the watch of connections, if the pod belongs to a job."""
        running = [(name, run) for name, run in self.alive_runs() if run.process is not None]
        processes = {self._key(name, run.restart).mark: run.process for name, run in running if run.process}
        started = max((run.started_at or 0.0 for _, run in running), default=0.0)
        networked = NetworkedPod(pod.job, pod.name, processes, started) if pod.job and processes else None
        self._context.ports.watch(self._uid, networked)

    def port_problem(self, pod: LocalPod) -> str:
        """Return how the pod is connected with a port of another job; the owner of a port is found when the pod
        ends."""
        taken = taken_port(pod, self.histories, self._context.runs)
        if taken and taken not in self._holders:
            self._holders[taken] = self._context.ports.holder(taken)
        holder = self._holders.get(taken, "")
        return f"port {taken} is taken by {holder}" if holder else self._context.ports.note(pod.uid)

    def publish_volumes(self, pod: LocalPod) -> None:
        """Write the files in the pod's volumes that show its metadata. Raise OSError on failure."""
        self._volumes.publish(pod)

    def begin_restart(self, generation: str) -> None:
        """Begin the restart in place for a generation, unless that restart was done or comes too late.

        Raise OSError on failure.
        """
        restart = pod_lifecycle.next_restart(self.spec, self.histories, generation)
        if restart is not None:
            write_restart(self._context.layout, self._uid, restart)
            self.spec = replace(self.spec, restart=restart)

    def apply(self, action: Action, pod: LocalPod) -> None:
        """Start, terminate or kill a container.

        Raise ValueError, TypeError, AttributeError or LookupError if its spec cannot be read.
        """
        match action:
            case StartContainer(container, restart):
                self._start(pod, container, restart)
            case TerminateContainer(container, run):
                if run.process is not None:
                    container_processes.ask_to_end(run.process, run.shim)
                self.signalled |= {(container, run.restart)}
            case KillContainer(container, run):
                shims = () if run.shim is None else (run.shim,)
                container_processes.kill_marked(self._key(container, run.restart).mark, run.process, shims)

    def _start(self, pod: LocalPod, name: str, restart: int) -> None:
        """Start a run, or record why it cannot start yet."""
        container = next(container for container in pod.containers if container["name"] == name)
        try:
            if not self._set_up_volumes(pod):
                return
            self._volumes.publish(pod)
            objects = self._gather((name, restart), config_sources.variable_keys(container, pod.namespace))
            if objects is None:
                return
            order = self._order(pod, container, restart, objects)
            if order is None:
                self.start_problems[name] = StartProblem("the node's GPUs are not free yet")
                return
            self._context.kept_logs.register(pod)
            self._context.runs.start(self._key(name, restart), order)
            self._context.runs.prune(self._uid, name)
            self._objects.end((name, restart))
        except NotReady as e:
            self._objects.reject((name, restart), e.key)
            self.start_problems[name] = StartProblem(str(e), _CONFIG_ERROR)
        except OSError as e:
            logger.warning("container %s of pod %s cannot start yet: %s", name, pod, e)
            self.start_problems[name] = StartProblem(f"the machine cannot start it: {e}")

    def _set_up_volumes(self, pod: LocalPod) -> bool:
        """Write the volumes that are made of ConfigMaps, once for the whole life of a pod; return whether that is done.

        Raise OSError if the machine refuses.
        """
        if self._volumes_are_ready or self.have_run():
            return True
        objects = self._gather(_VOLUMES, config_sources.volume_keys(pod.spec, pod.namespace))
        if objects is None:
            return False
        try:
            self._volumes.set_up(pod, objects)
        except NotReady as e:
            self._objects.reject(_VOLUMES, e.key)
            self.volume_problem = str(e)
            return False
        self._objects.end(_VOLUMES)
        self._volumes_are_ready = True
        return True

    def _gather(self, step: Hashable, keys: Iterable[ConfigKey]) -> ConfigObjects | None:
        objects = self._objects.gather(step, keys)
        self.awaits_answer = self.awaits_answer or objects is None
        return objects

    def _order(self, pod: LocalPod, container: Mapping[str, Any], restart: int, objects: ConfigObjects) -> Order | None:
        """Return the command that a container executes; None while not enough GPUs are free."""
        node = self._context
        folder = node.layout.pod(pod.uid)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        assigned = node.devices.assign(pod.uid, devices.count(pod.spec))
        if assigned is None:
            return None
        name = container["name"]
        context = ContainerContext(
            base=node.base,
            volumes={volume["name"]: str(self._volumes.folder(volume)) for volume in pod.spec.get("volumes") or ()},
            message=str(node.runs.folder(self._key(name, restart)) / MESSAGE),
            folder=str(folder),
            gpus=devices.share(pod.spec, name, assigned),
            machine_gpus=GPU in node.allocatable,
            allocatable=node.allocatable,
            output=str(self._volumes.output(pod_requirements.OUTPUT)) if pod.job else "",
            models=self._volumes.models(pod, container),
            objects=objects,
        )
        return container_environment.order(pod, container, context)

    def _key(self, container: str, restart: int) -> RunKey:
        return RunKey(self._uid, container, restart)


def read_restart(layout: Layout, uid: str) -> Restart | None:
    """Return a pod's last restart in place from disk; None if the pod had no restart."""
    with suppress(FileNotFoundError):
        return Restart(**json.loads((layout.pod(uid) / _RESTART_FILE).read_bytes()))
    return None


def write_restart(layout: Layout, uid: str, restart: Restart) -> None:
    """Write a pod's last restart in place to disk, whole or not at all. Raise OSError on failure."""
    folder = layout.pod(uid)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    shim.write(str(folder), _RESTART_FILE, json.dumps(asdict(restart)))


def _memory_limit(spec: Mapping[str, Any]) -> int:
    """Return `resources.limits.memory` of a container, or of a pod itself, in bytes; 0 for no limit."""
    return demand.read_resources((spec.get("resources") or {}).get("limits")).get("memory", 0)
