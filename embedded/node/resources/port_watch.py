"""Finds pods of one job that are connected to a pod of another job: they may train in one world.

One rule: the watch ends no pod. The watch notes the connection at both pods, once for each pod, and an Event tells the
owners.

All pods share the ports of this machine, and a script may choose a port itself. Worlds form in the first minutes of a
pod. So the watch looks every two seconds while pods of two jobs run and one of them is young, and does nothing at any
other time.
"""

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from crds import events
from crds.api_resources import EVENTS
from crds.keys import JobKey
from embedded.node.resources import loopback
from embedded.node.resources.pod_watch import IDLE, PodWatch
from embedded.node.runs.container_processes import ContainerProcesses, Process
from kube import errors
from kube.api import Cluster
from kube.object_errors import ObjectErrors

logger = logging.getLogger(__name__)

LOOK_SECONDS = 2.0
YOUNG_SECONDS = 600.0
"""The time after the start of its newest container in which the world of a pod forms."""
_REASON = "OtherJobConnected"
_ADVICE = "the two may train in one world: leave MASTER_PORT to torchq, or give each job a port of its own"


@dataclass(frozen=True, slots=True)
class NetworkedPod:
    """The running containers of a pod of a job."""

    job: JobKey
    name: str
    processes: Mapping[str, Process]
    """The first process of each container, by its mark."""
    started: float
    """The time at which its newest container started, in seconds since the epoch."""


@dataclass(slots=True)
class PortWatch(PodWatch[NetworkedPod]):
    """A thread that looks at the connections of pods."""

    cluster: Cluster
    errors: ObjectErrors = field(default_factory=ObjectErrors)
    clock: Callable[[], float] = time.time
    _notes: dict[str, str] = field(default_factory=dict)
    """By uid of a pod, what was found."""
    _members: ContainerProcesses = field(default_factory=ContainerProcesses)

    def watch(self, uid: str, pod: NetworkedPod | None) -> None:
        """Set the containers of a pod that run now; None if no container runs. Callable from any thread."""
        with self._changed:
            self._put(uid, pod)

    def forget(self, uid: str) -> None:
        """Forget a pod that no longer exists."""
        self.watch(uid, None)
        self._notes.pop(uid, None)

    def note(self, uid: str) -> str:
        """Return the findings about a pod; empty if there are none."""
        return self._notes.get(uid, "")

    def holder(self, port: int) -> str:
        """Return which job or program accepts connections at a port, as the end of a sentence; empty if none does."""
        inodes = loopback.read().listening.get(port)
        if not inodes:
            return ""
        pods = self._current()
        owner = next((pods[uid] for uid, found in self._sockets(pods).items() if found & inodes), None)
        return f"job {_name(owner.job)} (pod {owner.name})" if owner else "a program of this machine that is no pod"

    def _turn(self, _: Mapping[str, NetworkedPod]) -> float:
        began = time.monotonic()
        with self.errors.skipping("the connections of pods"):
            self.look()
        return max(LOOK_SECONDS, IDLE * (time.monotonic() - began))

    def look(self) -> None:
        """Look once at the connections between pods of different jobs."""
        pods = self._current()
        young = {pod.job for pod in pods.values() if self.clock() - pod.started < YOUNG_SECONDS}
        if not young or len({pod.job for pod in pods.values()}) < 2:
            return
        # The lowest port comes first: a script chose this port, and the ports that the system chooses are above.
        found = sorted(loopback.read().connections(), key=lambda connection: connection.port)
        if not found:
            return
        owners = {inode: pods[uid] for uid, inodes in self._sockets(pods).items() for inode in inodes}
        uids = {id(pod): uid for uid, pod in pods.items()}
        for connection in found:
            client, server = owners.get(connection.client), owners.get(connection.server)
            if client is None or server is None or client.job == server.job:
                continue
            joined = f"pod {client.name} connected to port {connection.port} of pod {server.name} of job"
            joined += f" {_name(server.job)}: {_ADVICE}"
            met = f"pod {client.name} of job {_name(client.job)} connected to port {connection.port} of pod"
            met += f" {server.name}: {_ADVICE}"
            self._tell(uids[id(client)], client, joined)
            self._tell(uids[id(server)], server, met)

    def _current(self) -> dict[str, NetworkedPod]:
        with self._changed:
            return dict(self._pods)

    def _sockets(self, pods: Mapping[str, NetworkedPod]) -> dict[str, set[int]]:
        """Return by uid the inodes of the sockets of pods."""
        found = self._members.find({mark: each for pod in pods.values() for mark, each in pod.processes.items()})
        return {
            uid: loopback.sockets(pid for mark in pod.processes for pid in found[mark]) for uid, pod in pods.items()
        }

    def _tell(self, uid: str, pod: NetworkedPod, message: str) -> None:
        if uid in self._notes:
            return
        self._notes[uid] = message
        logger.warning("job %s: %s", _name(pod.job), message)
        event = events.on_job(
            pod.job, _REASON, message, self.clock(), warning=True, component="torchq-node", owned=True
        )
        with suppress(errors.ClusterError):  # the condition of the pod says it, too
            self.cluster.create(EVENTS, event, pod.job.namespace)


def _name(job: JobKey) -> str:
    return f"{job.namespace}/{job.name}"
