"""Binds pods to the node, and says in PodGroups what became of them.

One rule: decides on everything it sees and everything it has just done: a pod it bound counts until the API server
shows it bound.
"""

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from crds.api_resources import PODS, Resource
from embedded import pod as pod_fields
from embedded.node.status import pod_status
from embedded.pod import LocalPod
from embedded.scheduler import placement, podgroup_status
from embedded.scheduler.decisions import Bind, Hold, Wait
from embedded.scheduler.node_capacity import Node
from embedded.scheduler.podgroup_cache import GangBook
from embedded.scheduler.podgroups import Gangs, PodGroup
from kube import errors
from kube.api import Cluster, Manifest
from kube.object_errors import ObjectErrors

logger = logging.getLogger(__name__)

_GATHER_SECONDS = 0.01
"""How long to wait after a change for those that come with it."""
_RETRY_SECONDS = 1.0
_PASSING_SECONDS = 2.0
"""How old a pod is before it is told that it waits for others: a group of a thousand takes a moment to be made, and to
write that into each of them would take longer."""
ABSENT = (errors.Unreachable, errors.ServerError, errors.TooManyRequests, errors.Unauthorized)
"""Errors after which the next pod would fare no better."""
_CORDONED = "0/1 nodes are available: 1 node(s) were unschedulable."


@dataclass(frozen=True, slots=True)
class NodeView:
    """What others say about the node in its object."""

    cordoned: bool = False
    """Whether it takes no further pods."""
    labels: Mapping[str, str] = field(default_factory=dict)


class Scheduler:
    """A thread that places pods whenever pods change."""

    def __init__(
        self,
        cluster: Cluster,
        node: Node,
        pods: Callable[[], Iterable[LocalPod]],
        clock: Callable[[], float],
        view: Callable[[], NodeView] = NodeView,
        errors: ObjectErrors | None = None,
    ) -> None:
        self._cluster = cluster
        self._node = node
        self._pods = pods
        self._clock = clock
        self._view = view
        self._errors = errors or ObjectErrors()
        self.book = GangBook(cluster, self.changed)
        self._bound: set[str] = set()
        """Uids of pods bound by us that the API server has not shown bound yet."""
        self._look_again = False
        """Whether a pod is to be told why it waits if it still does in a while."""
        self._changed = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="scheduler")

    def start(self) -> None:
        """Begin; the pods must be known by now."""
        self._changed.set()
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stopping.set()
        self._changed.set()
        self._thread.join()

    def changed(self) -> None:
        """Some pod changed, or what pods depend on."""
        self._changed.set()

    def _run(self) -> None:
        while True:
            self._changed.wait(_PASSING_SECONDS if self._look_again else None)
            self._stopping.wait(_GATHER_SECONDS)
            if self._stopping.is_set():
                return
            self._changed.clear()
            try:
                self.cycle()
            except errors.ClusterError as e:
                logger.warning("pods are placed again in a second: %s", e)
                self._later()
            except Exception as e:
                self._errors.met("the placing of pods", e)
                self._later()
            else:
                self._errors.over("the placing of pods")

    def _later(self) -> None:
        self._stopping.wait(_RETRY_SECONDS)
        self._changed.set()

    def cycle(self) -> None:
        """Look, decide, bind: once. ClusterError if the API server fails; what was done stays done."""
        gangs, view = self.book.gangs(), self._view()
        node = replace(self._node, labels={**view.labels, **self._node.labels})
        holds: list[Hold] = []
        self._look_again = False
        for decision in placement.place(self._overlaid(), node, gangs):
            if self._stopping.is_set():
                return
            if isinstance(decision, Hold):
                holds.append(decision)
            else:
                self._single(f"Pod {decision.pod}", partial(self._obey, decision, cordoned=view.cordoned))
        if gangs.groups:
            self._tell_groups(gangs, {hold.group.key: hold for hold in holds})

    def _obey(self, decision: Bind | Wait, *, cordoned: bool) -> None:
        match decision:
            case Bind(pod) if cordoned:
                self._explain(pod, "Unschedulable", _CORDONED)
            case Bind(pod):
                self._bind(pod)
            case Wait(pod, passing=True) if self._clock() - pod_fields.seconds(pod.created) < _PASSING_SECONDS:
                self._look_again = True
            case Wait(pod, reason, message):
                self._explain(pod, reason, message)

    def _single(self, subject: str, act: Callable[[], object]) -> None:
        """Do something about one object. What only that object has caused does not keep the others waiting."""
        try:
            act()
        except ABSENT:
            raise
        except Exception as e:
            self._errors.met(subject, e)
        else:
            self._errors.over(subject)

    def _tell_groups(self, gangs: Gangs, holds: Mapping[tuple[str, str], Hold]) -> None:
        """Say in each PodGroup what has become of it, unless it says so."""
        members: dict[tuple[str, str], list[LocalPod]] = defaultdict(list)
        for pod in self._overlaid():
            if pod.pod_group:
                members[pod.namespace, pod.pod_group].append(pod)
        for key, group in gangs.groups.items():
            subject = f"PodGroup {group.namespace}/{group.name}"
            self._single(subject, partial(self._tell_group, group, members[key], holds.get(key)))

    def _tell_group(self, group: PodGroup, members: Sequence[LocalPod], hold: Hold | None) -> None:
        status = podgroup_status.status(group, members, hold, self._clock())
        if podgroup_status.differs(status, group.status):
            self.book.write(group, status)

    def _overlaid(self) -> list[LocalPod]:
        """The pods as the API server shows them, with our bindings it has not shown yet."""
        seen = list(self._pods())
        self._bound &= {pod.uid for pod in seen if not pod.node}
        return [replace(pod, node=self._node.name) if pod.uid in self._bound else pod for pod in seen]

    def _bind(self, pod: LocalPod) -> None:
        body: Manifest = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": self._node.name},
        }
        try:
            self._cluster.create(_binding(pod), body, pod.namespace)
        except (errors.NotFound, errors.Conflict) as e:
            logger.info("pod %s is not bound: %s", pod, e)
            return
        self._bound.add(pod.uid)

    def _explain(self, pod: LocalPod, reason: str, message: str) -> None:
        """Say in the pod's status why it waits, unless it says so."""
        before = pod_status.sound(pod.status.get("conditions"))
        wanted = pod_status.condition("PodScheduled", False, reason, message)
        if any(wanted.items() <= condition.items() for condition in before):
            return
        conditions = pod_status.merge_conditions(before, [wanted], self._clock())
        patch = {"metadata": {"uid": pod.uid}, "status": {"conditions": conditions}}
        try:
            self._cluster.patch(PODS, pod.name, patch, pod.namespace, subresource="status")
        except (errors.NotFound, errors.Conflict, errors.Invalid):  # Invalid: another pod has its name
            logger.debug("pod %s is gone", pod)


def _binding(pod: LocalPod) -> Resource:
    """The binding subresource of a pod, which only a create reaches."""
    return Resource("", "v1", f"{PODS.plural}/{pod.name}/binding", "Binding")
