"""What pods of jobs hold on nodes that take no new pods, and keep until they end.

One rule: pure. A job is charged for all of its pods, wherever they run. So the pool counts what a pod holds on a closed
node as room of that node, for as long as the pod stays there: else the charge would be taken from the open nodes.

A pod that is about to leave its node needs room on another one. Until it has moved, its charge is taken from the open
nodes, so that no other job gets this room. These pods count for nothing here:

    the pod is being deleted                                   its job ends, or makes it elsewhere
    its node is silent, or about to go away (leaving_taints)   it is lost, or leaves
    its node is cordoned, and the job could run on the others  it leaves (`reconcilers.plan.departures`)
"""

from collections.abc import Collection, Iterable, Mapping

from coordinator.cache.node_views import NodeView
from coordinator.cache.views import JobView, PodView
from crds import node_requirements
from crds.keys import JobKey
from crds.node_requirements import is_inside
from crds.resources import amounts
from crds.resources.amounts import Amounts


def held(nodes: Collection[NodeView], pods: Iterable[PodView], jobs: Mapping[JobKey, JobView]) -> Mapping[str, Amounts]:
    """Return by closed node what pods hold there that stay. `pods` are those that are charged to jobs, and others."""
    closed = {node.name: node for node in nodes if node.keeps_pods and not node.ready}
    found: dict[str, dict[str, int]] = {}
    stays = _Stays(nodes)
    for pod in pods if closed else ():
        node, job = closed.get(pod.node), jobs.get(pod.job) if pod.job is not None else None
        if node is None or job is None or job.admission is None or not pod.occupies or pod.deleting:
            continue
        if not node.cordoned or job.refuses_evictions or stays.anywhere(job):
            amounts.increase(found.setdefault(node.name, {}), pod.demand)
    return found


class _Stays:
    """Judges which jobs could not run on the nodes that take pods; alike jobs once."""

    def __init__(self, nodes: Iterable[NodeView]) -> None:
        self._open = [node for node in nodes if node.ready]
        self._known: dict[object, bool] = {}

    def anywhere(self, job: JobView) -> bool:
        """Return whether a job stays on cordoned nodes, as no others could hold it. A job whose pods are not known
        does not stay. Pods of later stages are not looked at."""
        if job.gang is None or job.admission is None:
            return False
        members, domain, charge = job.gang.members, job.admission.domain, job.least_charge
        question = members, domain, frozenset(charge.items())
        if question not in self._known:
            inside = [node for node in self._open if is_inside(domain, node.labels)]
            pods = ((dict(shape.demand), shape.where) for shape, _ in members)
            self._known[question] = not node_requirements.could_hold(inside, pods, charge)
        return self._known[question]
