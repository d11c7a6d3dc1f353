"""Binds pods to the node and writes the statuses of PodGroups.

One rule: a decision takes into account the objects that the API server shows and the latest writes of the scheduler. A
pod that the scheduler has bound counts as bound before the API server shows it.
"""

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from crds import timestamps
from crds.api_resources import GANG_QUEUES, POD_GROUPS, PODS, Resource
from embedded.pod import LocalPod
from embedded.scheduler import placement, podgroup_status, podgroups
from embedded.scheduler.node_capacity import Node
from embedded.scheduler.placement import Bind, Hold, Wait
from embedded.scheduler.podgroups import Gangs, PodGroup
from embedded.status_conditions import condition, merge_conditions, well_formed
from kube import errors
from kube.api import Cluster
from kube.informer import Informer
from kube.object_errors import ObjectErrors

logger = logging.getLogger(__name__)

_GATHER_SECONDS = 0.01
"""The time to wait after a change for further changes of the same moment."""
_RETRY_SECONDS = 1.0
_PASSING_SECONDS = 2.0
"""The age at which a pod's status says that it waits for other pods of its group. A group of a thousand pods takes a
moment to be created, and writing into each of them would take longer."""
ABSENT = (errors.Unreachable, errors.ServerError, errors.TooManyRequests, errors.Unauthorized)
"""Errors that every further request would meet as well."""
_CORDONED = "0/1 nodes are available: 1 node(s) were unschedulable."


@dataclass(frozen=True, slots=True)
class ObservedNode:
    """The node as other clients changed it in its Node object."""

    cordoned: bool = False
    """Whether the node takes no further pods."""
    labels: Mapping[str, str] = field(default_factory=dict)


class PodGroupCache:
    """All PodGroups and Queues. Any thread may read the cache; only the scheduler's thread writes to the cache.

    The writes of the scheduler are taken into account before the API server shows them. After a failed write, the
    scheduler decides anew.
    """

    def __init__(self, cluster: Cluster, changed: Callable[[], None]) -> None:
        self._cluster = cluster
        self._changed = changed
        self._groups: Informer[PodGroup] = Informer(
            cluster, POD_GROUPS, trim=podgroups.read, on_change=self._group_changed
        )
        self._queues: Informer[tuple[str, bool]] = Informer(
            cluster,
            GANG_QUEUES,
            trim=lambda queue: (queue["metadata"]["name"], podgroups.is_open(queue)),
            on_change=self._queue_changed,
        )
        self._written: dict[str, PodGroup] = {}
        """The groups as this scheduler's own writes left them, by uid."""

    @property
    def caches(self) -> tuple[Informer[Any], ...]:
        """The informers, which the node starts and stops."""
        return self._groups, self._queues

    def gangs(self) -> Gangs:
        """Return all PodGroups and Queues in their present state."""
        cached = {group.uid: group for group in self._groups.values()}
        self._written = {
            uid: group for uid, group in self._written.items() if uid in cached and group.version > cached[uid].version
        }
        groups = {group.key: group for group in (cached | self._written).values()}
        return Gangs(groups, dict(self._queues.values())) if groups else podgroups.NO_GANGS

    def write(self, group: PodGroup, status: Mapping[str, Any]) -> None:
        """Write a group's status. Raise ClusterError, unless the error means that the group has changed or is gone."""
        patch = {"metadata": {"uid": group.uid}, "status": status}
        try:
            written = self._cluster.patch(POD_GROUPS, group.name, patch, group.namespace)
        except (errors.NotFound, errors.Conflict, errors.Invalid) as e:  # Invalid: another group has its name
            logger.info("the status of PodGroup %s/%s is not written: %s", group.namespace, group.name, e)
            return
        self._written[group.uid] = podgroups.read(written)

    def _group_changed(self, before: PodGroup | None, after: PodGroup | None) -> None:
        is_own_write = after is not None and self._written.get(after.uid) == after
        if before != after and not is_own_write:
            self._changed()

    def _queue_changed(self, before: object, after: object) -> None:
        if before != after:
            self._changed()


class Scheduler:
    """A thread that places pods whenever pods, PodGroups or the node change."""

    def __init__(
        self,
        cluster: Cluster,
        node: Node,
        pods: Callable[[], Iterable[LocalPod]],
        clock: Callable[[], float],
        view: Callable[[], ObservedNode] = ObservedNode,
        errors: ObjectErrors | None = None,
    ) -> None:
        self._cluster = cluster
        self._node = node
        self._pods = pods
        self._clock = clock
        self._view = view
        self._errors = errors or ObjectErrors()
        self.pod_groups = PodGroupCache(cluster, self.wake)
        self._bound: set[str] = set()
        """The uids of pods that this scheduler bound and that the API server does not show as bound yet."""
        self._has_new_pods = False
        """Whether a pod waits for others of its group and is too new for its status to say so."""
        self._changed = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="scheduler")

    def start(self) -> None:
        """Start the thread. The caches of pods and PodGroups must have synced."""
        self._changed.set()
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stopping.set()
        self._changed.set()
        self._thread.join()

    def wake(self) -> None:
        """Request a cycle: a pod has changed, or an object that pods depend on has changed. Callable from any
        thread."""
        self._changed.set()

    def _run(self) -> None:
        while True:
            self._changed.wait(_PASSING_SECONDS if self._has_new_pods else None)
            self._stopping.wait(_GATHER_SECONDS)
            if self._stopping.is_set():
                return
            self._changed.clear()
            if not self._try_cycle():
                self._stopping.wait(_RETRY_SECONDS)
                self._changed.set()

    def _try_cycle(self) -> bool:
        """Carry out a cycle; return False if it has to be tried again."""
        try:
            with self._errors.skipping("the placing of pods", leaving=(errors.ClusterError,)):
                self.cycle()
                return True
        except errors.ClusterError as e:
            logger.warning("the placing of pods failed and is tried again in a second: %s", e)
        return False

    def cycle(self) -> None:
        """Decide once about all waiting pods and carry the decisions out.

        Raise ClusterError if the API server fails; pods that were bound before the failure stay bound.
        """
        gangs, view = self.pod_groups.gangs(), self._view()
        node = replace(self._node, labels={**view.labels, **self._node.labels})
        holds: list[Hold] = []
        self._has_new_pods = False
        for decision in placement.place(self._current_pods(), node, gangs):
            if self._stopping.is_set():
                return
            if isinstance(decision, Hold):
                holds.append(decision)
            else:
                with self._errors.skipping(f"Pod {decision.pod}", leaving=ABSENT):
                    self._carry_out(decision, cordoned=view.cordoned)
        if gangs.groups:
            self._update_groups(gangs, {hold.group.key: hold for hold in holds})

    def _carry_out(self, decision: Bind | Wait, *, cordoned: bool) -> None:
        match decision:
            case Bind(pod) if cordoned:
                self._explain(pod, "Unschedulable", _CORDONED)
            case Bind(pod):
                self._bind(pod)
            case Wait(pod, passing=True) if self._clock() - timestamps.parse_seconds(pod.created) < _PASSING_SECONDS:
                self._has_new_pods = True
            case Wait(pod, reason, message):
                self._explain(pod, reason, message)

    def _update_groups(self, gangs: Gangs, holds: Mapping[tuple[str, str], Hold]) -> None:
        """Write the status of each PodGroup whose status has changed."""
        members: dict[tuple[str, str], list[LocalPod]] = defaultdict(list)
        for pod in self._current_pods():
            if pod.pod_group:
                members[pod.namespace, pod.pod_group].append(pod)
        for key, group in gangs.groups.items():
            with self._errors.skipping(f"PodGroup {group.namespace}/{group.name}", leaving=ABSENT):
                status = podgroup_status.status(group, members[key], holds.get(key), self._clock())
                if podgroup_status.differs(status, group.status):
                    self.pod_groups.write(group, status)

    def _current_pods(self) -> list[LocalPod]:
        """Return the pods as the API server shows them, with the bindings that it does not show yet."""
        pods = list(self._pods())
        self._bound &= {pod.uid for pod in pods if not pod.node}
        return [replace(pod, node=self._node.name) if pod.uid in self._bound else pod for pod in pods]

    def _bind(self, pod: LocalPod) -> None:
        binding = Resource("", "v1", f"{PODS.plural}/{pod.name}/binding", "Binding")
        metadata = {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid}
        target = {"apiVersion": "v1", "kind": "Node", "name": self._node.name}
        try:
            self._cluster.create(binding, binding.manifest(metadata, target=target), pod.namespace)
        except (errors.NotFound, errors.Conflict) as e:
            logger.info("pod %s is not bound: %s", pod, e)
            return
        self._bound.add(pod.uid)

    def _explain(self, pod: LocalPod, reason: str, message: str) -> None:
        """Write into the pod's status why it waits, unless the status says so."""
        before = well_formed(pod.status.get("conditions"))
        update = condition("PodScheduled", False, reason, message)
        if any(update.items() <= existing.items() for existing in before):
            return
        conditions = merge_conditions(before, [update], self._clock())
        patch = {"metadata": {"uid": pod.uid}, "status": {"conditions": conditions}}
        try:
            self._cluster.patch(PODS, pod.name, patch, pod.namespace, subresource="status")
        except (errors.NotFound, errors.Conflict, errors.Invalid):  # Invalid: another pod has its name
            logger.debug("pod %s no longer exists", pod)
