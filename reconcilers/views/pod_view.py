"""A pod as a reconcile sees it: about 1 KB, built once when the informer receives the manifest.

One rule: no code outside of this module reads a pod's manifest.
"""

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from crds import excerpts, integers, labels, owners, timestamps
from crds.torchjob import claims
from crds.torchjob.claims import ClaimReference
from kube.api import Manifest
from reconcilers.views import containers, pod_end, pod_outcome, pod_place, pod_problems, pod_result, torchrun
from reconcilers.views.containers import Requests
from reconcilers.views.pod_outcome import FINISHED, PodEnd, PodOutcome

LONGEST_PROBLEM = 600
"""The largest number of characters of a pod's problem. Many pods of a job share the same text, which is stored once."""
LONGEST_ADVICE = 600
CLOSING_SECONDS = 30.0
"""The longest time in seconds from the end of a container until its node writes the pod's last phase."""
_INITIAL_FIELDS = frozenset({"phase", "qosClass"})
"""The status fields that a new pod has before any node or scheduler has seen it. A thousand new pods have no others."""
EVICTED_BY_VOLCANO = "Evict"
"""The reason of the condition Ready (False) with which Volcano preempts a pod or reclaims its resources. Before 1.16 it
sets no other condition."""
BY_SCHEDULER = frozenset({"PreemptionByScheduler", EVICTED_BY_VOLCANO})
"""The reasons of pods that a scheduler deletes, whose resources it gives to others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodView:
    """One pod of a TorchJob."""

    namespace: str
    name: str
    uid: str
    job_uid: str
    task: str
    """The task type in lower case, as it stands in the pod's name."""
    index: int
    attempt: int
    """The number of the admission that the pod belongs to."""
    restart: int
    """The restart generation of the job that the pod belongs to."""
    phase: str = "Pending"
    """The phase of the main container once that has ended for good, else the pod's own phase."""
    has_running_containers: bool = False
    """Whether other containers may still run although the main container has ended for good."""
    reason: str = ""
    """The reason of the phase: the pod's own reason, else that of its failed container."""
    message: str = ""
    """The last output of the pod, as one line."""
    exit_code: int | None = None
    """The exit code of the main container, or of the container that failed before or beside it; None if it is unknown.
    For a pod that its node restarts in place: the exit code of the previous run."""
    cause: int | None = None
    """The exit code of the failed process as torchrun reports it, in a shell's notation; None if torchrun reports none.
    """
    lost_peer: bool = False
    """Whether the last output blames another process or the connection to it."""
    gave: str = ""
    """What the main container has ended with (`reconcilers.views.pod_result.given`)."""
    unexplained: bool = False
    """Whether the pod's end can be explained further: its message is shortened here, or its log holds the cause
    (`explain`)."""
    ended: float | None = None
    """When the container ended, in seconds since the epoch."""
    used_memory: int = 0
    """The memory in bytes of the main container, if it was killed because it had used up all of it; else 0."""
    disruption: str = ""
    """Why the pod was disrupted: a reason and perhaps a message; empty if it was not disrupted."""
    advice: str = ""
    """The node's advice for the user: about the failure of the pod, or about a pod of another job that it is connected
    with; empty if there is none."""
    problem: str = ""
    """The problem that keeps the pod from running, as its node or scheduler reports it, also in the phase Running;
    empty if there is none."""
    deleting: bool = False
    deadline: float | None = None
    """When a pod that is being deleted should no longer exist, in seconds since the epoch."""
    grace: int | None = None
    """The grace in seconds: what the deletion grants, else what the pod requests; None for the API server's default."""
    has_finalizers: bool = False
    """Whether the pod has finalizers."""
    shut_since: float | None = None
    """When the pod reached its closed start gate, in seconds since the epoch; infinity if it has not reached it, and
    None if no gate is closed."""
    node: str = ""
    since: float | None = None
    """When the pod was started on its node, else created, in seconds since the epoch."""
    version: int = 0
    """The resourceVersion."""
    service: str = ""
    """The name of the headless service that was created for the pod; empty if it has none."""
    end: PodEnd = pod_outcome.NOTHING
    """What is known of the end of the main container."""
    deletion_asked: float | None = None
    """When the deletion of the pod was asked for first, in seconds since the epoch; -infinity if that is unknown, and
    None if it was not asked for."""
    has_restart_agent: bool = False
    """Whether the pod has a restart agent, by which all of its containers can be restarted."""
    ended_containers: str = ""
    """The names of the containers that have ended with exit code 0, separated by commas."""
    self_healing: bool = False
    """Whether the node restarts the main container when that fails; the pod itself does not fail then."""
    restarts: int = 0
    """The number of ended runs of the main container that its node has followed, or will follow, by another one."""
    counted_restarts: int = 0
    """The number of those restarts that the job has already counted."""
    requested_restart: str = ""
    """The purpose of the last requested restart in place; empty if none was requested."""
    restart_requested_at: float | None = None
    """When that restart was requested, in seconds since the epoch."""
    completed_restart: str = ""
    """The purpose of the last restart in place that the node completed."""
    failed_restart: str = ""
    """The purpose of the restart in place that the node could not do, and the reason."""
    agent_failure: str = ""
    """Why the pod's restart agent cannot run; empty if it runs, and for a pod without one."""
    avoids: str = ""
    """The nodes that pods of its job had left when it was created, separated by commas; it stays even on one of
    them."""
    place: str = ""
    """The place in a static world with which its containers start next (`reconcilers.views.pod_place`); empty if its
    ranks do not change."""
    hosts: str = ""
    """The digest of the pod's host file; empty if it has none."""
    requests: Requests = ()
    """The requests of the pod as it was created, by canonical resource name, sorted."""
    claims: tuple[ClaimReference, ...] = ()
    """The resource claims of the pod. An observation adds the devices of these to `requests`."""

    @property
    def started(self) -> bool:
        """Whether the pod's containers run or are being started again, and the pod is not being deleted."""
        return self.phase == "Running" and not self.deleting

    @property
    def running(self) -> bool:
        """Whether the main container runs and the pod is not being deleted."""
        return self.started and not self.problem

    @property
    def gated(self) -> bool:
        """Whether the pod has a start gate that is still closed."""
        return self.shut_since is not None

    @property
    def waits(self) -> bool:
        """Whether the pod has reached its start gate, which is still closed."""
        return self.shut_since is not None and self.shut_since < math.inf

    @property
    def restarted_by_node(self) -> bool:
        """Whether the main container has failed, its node starts it again, and the job has not counted that yet."""
        return self.self_healing and not self.finished and not self.deleting and self.restarts > self.counted_restarts

    @property
    def awaits_restart(self) -> bool:
        """Whether the main container has failed and its node will start it again."""
        return PodEnd.AWAITS_RESTART in self.end

    def unended(self) -> "PodView":
        """Return the pod as if its main container had not ended yet."""
        restarts = self.restarts - self.awaits_restart
        return replace(self, phase="Running", problem="", restarts=restarts, end=self.end & PodEnd.CLOSING)

    @property
    def has_result(self) -> bool:
        """Whether the main container has ended with a result of the job."""
        return pod_result.KEY in self.gave

    @property
    def has_model(self) -> bool:
        """Whether the main container has counted the files of the job's model."""
        return pod_result.MODEL_KEY in self.gave

    @property
    def finished(self) -> bool:
        """Whether the pod has ended for good, as far as its job is concerned."""
        return self.phase in FINISHED


def occupies(pod: PodView) -> bool:
    """Return whether a pod takes resources: until its Kubernetes phase is Succeeded or Failed, or it no longer exists.

    A terminating pod takes resources, and so does a pod with any running container.
    """
    return pod.has_running_containers or not pod.finished


def is_preempted(pod: PodView) -> bool:
    """Return whether a scheduler has given the resources of a pod to other pods, or is about to do so."""
    return pod.disruption.partition(": ")[0] in BY_SCHEDULER


def must_be_stopped(pod: PodView, now: float) -> bool:
    """Return whether a pod takes resources until a client deletes it.

    A pod whose containers have ended is left to its node: a deletion of the pod would delete its logs.
    """
    is_closing = PodEnd.CLOSING in pod.end and pod.ended is not None and now < pod.ended + CLOSING_SECONDS
    return occupies(pod) and not is_closing


def list_names(names: Sequence[str], most: int = 5) -> str:
    """Return the first names of pods, and the number of further pods: no message grows with the size of its job."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def trim(manifest: Manifest) -> PodView:
    """Return the view of a pod that carries torchq's labels."""
    metadata, spec, status = manifest["metadata"], manifest["spec"], manifest.get("status") or {}
    pod_labels: Mapping[str, str] = metadata.get("labels") or {}
    outcome = pod_outcome.outcome(manifest)
    phase = outcome.phase
    granted = metadata.get("deletionGracePeriodSeconds") if "deletionTimestamp" in metadata else None
    seconds = spec.get("terminationGracePeriodSeconds") if granted is None else granted
    return PodView(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        job_uid=owners.job_uid(metadata),
        task=pod_labels.get(labels.TASK_TYPE, ""),
        index=_number(pod_labels, labels.TASK_INDEX),
        attempt=_number(pod_labels, labels.ATTEMPT),
        restart=_number(pod_labels, labels.RESTART),
        phase=phase,
        has_running_containers=phase in FINISHED and status.get("phase") not in FINISHED,
        deleting="deletionTimestamp" in metadata,
        shut_since=containers.closed_since(metadata, spec, status),
        deadline=timestamps.seconds_or_none(metadata.get("deletionTimestamp")),
        grace=seconds if isinstance(seconds, int) else None,
        has_finalizers=bool(metadata.get("finalizers")),
        node=spec.get("nodeName") or "",
        since=timestamps.seconds_or_none(status.get("startTime") or metadata.get("creationTimestamp")),
        version=version(manifest),
        service=metadata["name"] if spec.get("subdomain") == metadata["name"] else "",
        requests=containers.read(spec),
        claims=claims.references(spec, status) if spec.get("resourceClaims") else (),
        end=outcome.end,
        deletion_asked=outcome.deletion_asked,
        **_restarts(manifest, outcome),
        **(_status_fields(manifest, phase) if status.keys() - _INITIAL_FIELDS else {}),
    )


def _status_fields(manifest: Manifest, phase: str) -> dict[str, Any]:
    """Return the fields that come from the reports of the node, the scheduler, or the program that evicts the pod."""
    spec, status = manifest["spec"], manifest["status"]
    return {
        "problem": _problem_text(manifest, phase),
        **_conditions(status),
        **pod_end.read(spec, status, phase),
        "gave": pod_result.given(manifest) if phase in FINISHED else "",
        "agent_failure": containers.find_agent_failure(status),
    }


def _problem_text(manifest: Manifest, phase: str) -> str:
    """Return the problem of a pod that should run but does not. Many pods of a job have the same text, so it is
    interned."""
    fields = (manifest.get("status") or {}).keys() & ("conditions", "initContainerStatuses", "containerStatuses")
    if not fields or phase in FINISHED or "deletionTimestamp" in manifest["metadata"] or pod_problems.is_up(manifest):
        return ""
    return sys.intern(excerpts.excerpt(str(pod_problems.find_problem(manifest) or "Waiting"), LONGEST_PROBLEM))


def _conditions(status: Mapping[str, Any]) -> dict[str, Any]:
    conditions = {condition["type"]: condition for condition in status.get("conditions") or ()}
    disruption = _disruption(conditions.get("DisruptionTarget", {}), conditions.get("Ready", {}))
    return {"disruption": disruption} | _in_place(conditions.get(labels.CONTAINERS_RESTARTED, {})) | _advice(conditions)


def _advice(conditions: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return the node's advice. The text is interned, because most pods of a job miss the same file."""
    found = (conditions.get(name, {}).get("message") for name in (labels.FOLDER_UNKNOWN, labels.PORT_SHARED))
    text = "; ".join(str(message) for message in found if message)
    return {"advice": sys.intern(excerpts.excerpt(text, LONGEST_ADVICE))} if text else {}


def _disruption(target: Mapping[str, Any], ready: Mapping[str, Any]) -> str:
    """Return why the pod was disrupted. Evictions set the condition DisruptionTarget; Volcano uses the condition
    Ready."""
    evicted = ready.get("status") == "False" and ready.get("reason") == EVICTED_BY_VOLCANO
    condition = target if target.get("status") == "True" else ready if evicted else None
    if condition is None:
        return ""
    reason, message = (
        condition.get("reason") or "DisruptionTarget",
        pod_end.last_line(condition.get("message") or "", pod_end.LONGEST_MESSAGE),
    )
    return sys.intern(f"{reason}: {message}" if message else reason)


def _in_place(condition: Mapping[str, Any]) -> dict[str, str]:
    """Return the result of the last restart in place that was requested from the node; the condition's message is its
    purpose."""
    what_for, why = condition.get("message") or "", condition.get("reason") or "without a reason"
    match condition.get("status"):
        case "True":
            return {"completed_restart": what_for}
        case "False":
            return {"failed_restart": f"{what_for}: {why}"}
    return {}


def _restarts(manifest: Manifest, outcome: PodOutcome) -> dict[str, Any]:
    metadata, spec, status = manifest["metadata"], manifest["spec"], manifest.get("status") or {}
    annotations: Mapping[str, str] = metadata.get("annotations") or {}
    main = containers.main(spec)
    restarts = containers.status_of(main["name"], status).get("restartCount", 0)
    return {
        "self_healing": spec.get("restartPolicy") == "OnFailure" or bool(main.get("restartPolicyRules")),
        "has_restart_agent": containers.has_restart_agent(spec),
        "ended_containers": ",".join(containers.ended_well(status)),
        "restarts": restarts + (PodEnd.AWAITS_RESTART in outcome.end),
        "counted_restarts": integers.parse(annotations.get(labels.RESTARTS_HANDLED), 0),
        "avoids": sys.intern(annotations.get(labels.LEFT_NODES, "")),
        "place": pod_place.read(annotations),
        "hosts": pod_place.hosts_digest(annotations),
        "requested_restart": annotations.get(labels.RESTART_CONTAINERS, ""),
        "restart_requested_at": timestamps.seconds_or_none(annotations.get(labels.RESTART_REQUESTED_AT)),
    }


def failing_container(manifest: Manifest) -> str:
    """Return the name of the container whose end decides the end of the pod, and whose log may explain it."""
    return _termination(manifest)[0] or str(containers.main(manifest["spec"])["name"])


def explain(pod: PodView, manifest: Manifest, log: str) -> PodView:
    """Return the pod with everything that is known of its end: the whole message, and the end of its log where that
    names the cause."""
    other, ended = _termination(manifest)
    last_words, cause = torchrun.last_output(pod_result.own_message(ended)), pod.cause
    if log and last_words.more:
        cause = torchrun.exit_cause(log) if pod_result.is_given(pod_result.own_message(ended)) else cause
        last_words = torchrun.last_output(log)
    message = pod_end.message(other, last_words, manifest.get("status") or {}, pod_end.LONGEST_EXPLANATION)
    return replace(pod, message=message, cause=cause, lost_peer=last_words.lost_peer, unexplained=False)


def _termination(manifest: Manifest) -> tuple[str, Mapping[str, Any]]:
    phase = pod_outcome.effective_phase(manifest)
    return pod_end.termination(manifest["spec"], manifest.get("status") or {}, phase)


def needs_log(manifest: Manifest) -> bool:
    """Return whether the cause of a pod's end is further back in its log than its status reaches."""
    _, ended = _termination(manifest)
    return torchrun.last_output(pod_result.own_message(ended)).more


def version(manifest: Manifest) -> int:
    """Return an object's resourceVersion; 0 if the server's versions are not numbers."""
    text = manifest["metadata"].get("resourceVersion", "")
    return integers.parse(text, 0)


def _number(pod_labels: Mapping[str, str], name: str) -> int:
    """Return the number in a label; -1, which matches nothing, if a user has made it invalid."""
    return integers.parse(pod_labels.get(name), -1)
