"""The ends of pods that torchq has asked for: a main container that saves and exits with 0 then has not succeeded.

One rule: pure. The pod itself, a request or the status of its job shows that an end was requested; while one of these
shows a request, the pod counts as failed, and no failure is counted. Such a pod is restarted where its node can restart
it, else replaced.

    found                                                   asked for since
    `status.replacing` names the pod                        the write of the status, before the pod is deleted
    an annotation for its node, without the node's result   the patch of the pod
    an annotation with a number of restarts not exceeded    the patch of the pod, before anything ends its containers
    a request that is not done                              the creation of the request
    the pod is of an earlier restart generation             the write of the status; no such pod counts at all
                                                            (`progress.is_outdated`)
"""

from collections.abc import Iterable
from dataclasses import replace

from crds import integers
from crds.torchjob.torchjob import TorchJob
from reconcilers.values import Observation
from reconcilers.views.pod_view import PodView
from reconcilers.views.recreate_request import RecreateView

INTERRUPTED = "Interrupted"
"""The reason of a pod that counts as failed because of such an end."""
ENDED = "its main container ended when it was asked to, with exit code 0, and its node does not start it again"
SEPARATOR = "/"


def show(observation: Observation) -> Observation:
    """Return the observation with the pods with their effective states."""
    job = observation.job
    if not isinstance(job, TorchJob) or job.is_finished:
        return observation
    replaced, requests = frozenset(job.status.replacing), observation.recreations
    pods = (
        replace(pod, phase="Failed", reason=INTERRUPTED)
        if _has_ended_well(pod) and (pod.uid in replaced or is_asked(pod, requests))
        else pod
        for pod in observation.pods
    )
    return replace(observation, pods=tuple(pods))


def _has_ended_well(pod: PodView) -> bool:
    """Return whether the main container of a pod has ended with 0, even if this end counts as a failure because its
    node was asked to stop it.
    """
    is_stopped = pod.phase == "Failed" and pod.exit_code == 0 and not (pod.deleting or pod.disruption)
    return pod.phase == "Succeeded" or is_stopped


def is_asked(pod: PodView, requests: Iterable[RecreateView]) -> bool:
    """Return whether a restart of the pod's containers is requested and not done."""
    return is_marked(pod) or any(_is_open(request, pod) for request in requests if request.pod_uid == pod.uid)


def mark(purpose: str, pod: PodView) -> str:
    """Return the text with which a pod is marked, whose number of restarts shows when its restart is done."""
    return f"{purpose}{SEPARATOR}{pod.restarts}"


def purpose(pod: PodView) -> str:
    """Return the purpose of the last restart that was requested for a pod."""
    return pod.requested_restart.partition(SEPARATOR)[0]


def is_marked(pod: PodView) -> bool:
    """Return whether the pod's own annotations show a restart that is not done."""
    if not pod.requested_restart or pod.restart_requested_at is None:
        return False
    _, is_counted, before = pod.requested_restart.partition(SEPARATOR)
    if is_counted:
        return pod.restarts <= integers.parse(before, -1)
    return pod.completed_restart != pod.requested_restart


def _is_open(request: RecreateView, pod: PodView) -> bool:
    """Return whether a request may still end the main container, or has ended it and not started it again."""
    is_done = request.verdict == "Done" and pod.restarts > request.restarts
    return not is_done and request.restarts >= pod.counted_restarts


def is_interrupted(pod: PodView) -> bool:
    """Return whether a pod counts as failed only because its end was asked for."""
    return pod.reason == INTERRUPTED


def may_go_on(pod: PodView) -> bool:
    """Return whether the node of a pod may still start its main container again, which has ended while a restart is
    asked for. The node does not if it has ended the pod, or restarts only containers that fail.

    A pod whose agent restarts all containers is Pending again until its init containers have run."""
    if pod.has_restart_agent and pod.phase == "Pending":
        return bool(pod.requested_restart)
    is_ending = is_interrupted(pod) or (pod.has_restart_agent and pod.phase == "Failed" and is_marked(pod))
    return is_ending and pod.has_running_containers and not pod.self_healing


def is_final(pod: PodView) -> bool:
    """Return whether an interrupted pod is not started again."""
    return is_interrupted(pod) and not may_go_on(pod)


def is_uncounted(pod: PodView) -> bool:
    """Return whether the end of a pod is no failure: it was asked for, or its containers are just being restarted."""
    return is_interrupted(pod) or may_go_on(pod)
