"""The judgement of failed and lost pods.

One rule: pure. Each failure is counted once. A counted failure is named in `status.replacing`, or its pod is of an
earlier generation after a restart of the whole job.

    failure                                             counts as
    the pod was deleted, evicted, preempted or not      a disruption, whatever the policy: it is replaced, up to
    taken by its node; its node is lost or was shut     `most_disruptions` of the job
    down; its exit code is unknown
    it could not be started, or its code could not be   fails the job: it could not be started next time
    unpacked (`reconcilers.views.pod_code`)
    it failed: restartPolicy Never                      fails the job
               restartPolicy ExitCode                   by the code, below
               restartPolicy OnFailure                  retryable, up to backoffLimit restarts of the job
               restartPolicy Always                     the same

    code           restartPolicy ExitCode
    0              fails      the pod exceeded a limit of its own, though its program ended well
    1-127          fails      chosen by the program or the shell: 2 usage, 126 not executable, 127 not found
    128            fails      no signal: an invalid argument of exit, or a container that could not be started
    129-192        is retried a signal: sent from outside, or by circumstances: out of memory (137), a lost peer
                              (134: NCCL's watchdog aborts; 141), full shared memory (135), a user's request (138)
      132 133 136  fails      the signals that a program itself causes, and causes again next time: SIGILL, SIGTRAP,
      139 152 153             SIGFPE, SIGSEGV, SIGXCPU, SIGXFSZ, SIGSYS
      159
    193-255        fails      chosen by the program
      241 247 250  is retried what a launcher in Python makes of a child's -15, -9 and -6

An exit code of 1 is examined further. If torchrun reports the exit code of its process, that code decides. A process
that blames a lost peer did not fail by itself. OOMKilled is the job's own failure, and is retried; so is an
eviction because the pod used more local storage than its own limits allow. `backoff` defines how long a job waits
before its pods are created again. A pod whose task has memoryGrowth is replaced by a pod with more memory, as long
as the task allows more.

Of several failed pods, the first to fail is judged alone. A disruption explains the other failures. A pod that lost the
connection to a peer, or was asked to stop, is judged only if there is no other failed pod. The peer of such a pod
may have failed later by the clock, because it had more to clean up.
"""

import signal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from crds.torchjob.torchjob import TorchJob
from reconcilers.plan import grown_memory, rendezvous
from reconcilers.plan.health import early_failures
from reconcilers.pods import static_world
from reconcilers.pods.task_members import PodMember
from reconcilers.views import pod_code, pod_end, pod_outcome, pod_view, torchrun
from reconcilers.views.pod_history import SETTLING
from reconcilers.views.pod_view import PodView

NEVER_BEGAN = frozenset({"ContainerCannotRun", "NotSupported", "StartError"}) | pod_code.FOR_GOOD
"""The reasons of containers that could not be started, of pods that the embedded node cannot run, and of pods whose
code cannot be unpacked."""
PREEMPTED = pod_view.BY_SCHEDULER | {"Preempting", "EvictionByEvictionAPI"}
"""The reasons that do not blame the node: other pods needed the resources, or the node is being drained."""
PRESSURE = "low on"
"""The words of a kubelet that evicts pods because its node lacks resources. A kubelet that makes room for a critical
pod, or is shut down, gives the same condition, and no reason where the program exits with 0."""
SHUT_DOWN = frozenset({"NodeShutdown", "Shutdown", "Terminated"})
"""The reasons of pods whose node was shut down, which blames neither the job nor the node."""
NOT_THE_JOBS_FAULT = (
    PREEMPTED
    | SHUT_DOWN
    | {"ContainerStatusUnknown", "Evicted", "NodeAffinity", "NodeLost", "UnexpectedAdmissionError"}
)
"""The reasons that a node or a scheduler gives for a pod that it ended or did not accept; `OutOf<resource>` is another
one."""
OWN_LIMITS = frozenset({"DeadlineExceeded"})
"""The reasons without an exit code that are the job's own failure."""
OWN_SIGNALS = frozenset(
    {
        signal.SIGILL,
        signal.SIGTRAP,
        signal.SIGFPE,
        signal.SIGSEGV,
        signal.SIGXCPU,
        signal.SIGXFSZ,
        signal.SIGSYS,
    }
)
LAUNCHERS = frozenset({256 - signal.SIGTERM, 256 - signal.SIGKILL, 256 - signal.SIGABRT})

Kind = Literal["Permanent", "Retryable", "Disruption"]


@dataclass(frozen=True, slots=True)
class PodFault:
    """One pod that failed or is lost."""

    pod: PodView
    kind: Kind
    message: str
    reason: str = "PodFailed"
    """The reason with which the job fails, if the fault is permanent."""
    irreplaceable: bool = False
    """Whether no other pod can take the place of this one, so that all pods are restarted."""
    outgrown: bool = False
    """Whether the pod used up its memory and the next one gets more, so that it is replaced, not restarted."""

    @property
    def would_come_back(self) -> bool:
        """Whether the pod's node would restart it in place, with the memory that was not enough."""
        return self.outgrown and self.pod.self_healing

    @property
    def mark(self) -> str:
        """The mark in `status.replacing` by which the fault is counted."""
        is_restarted = self.pod.restarted_by_node and not self.outgrown
        return f"{self.pod.uid}/{self.pod.restarts}" if is_restarted else self.pod.uid


@dataclass(frozen=True, slots=True)
class JobVerdict:
    """The judgement: the job fails for good, or its pods are restarted."""

    permanent: bool
    reason: str
    message: str
    kind: Kind = "Permanent"
    whole: bool = False
    """Whether the whole job is restarted, else only the named pods."""
    marks: tuple[str, ...] = ()
    pods: tuple[str, ...] = ()
    """The names of the pods to restart; without disrupted pods if the job itself failed."""
    node: str = ""
    """The node to blame; empty if none is."""
    memory: Mapping[str, int] = field(default_factory=dict)
    """The memory of the next pods, by task type, where it has grown."""
    early: str = ""
    """The output of a failure before the first step, with which the next attempt is compared."""
    wait: float = 0.0
    """If not 0: seconds after which the failure is judged again, and nothing else is done before."""


def find_faults(
    job: TorchJob, pods: Iterable[PodView], dead: frozenset[str], restarting: frozenset[str]
) -> Sequence[PodFault]:
    """Return the faults of the job's pods that are not counted yet, the decisive fault first.

    `dead` are names of nodes; `restarting` are the uids of pods whose containers are being restarted on request.
    """
    policies = {name.lower(): task.restart_policy for name, task in job.spec.torch_task_specs.items()}
    counted, candidates = frozenset(job.status.replacing), tuple(pods)
    is_ending = rendezvous.has_succeeded(job, candidates)
    new_faults = [
        fault
        for pod in candidates
        if pod.restart == job.status.restart_generation and pod.uid not in counted
        if pod.phase != "Succeeded" or rendezvous.is_store(job, pod)
        if not (is_ending and rendezvous.meets_others(job, pod) and not rendezvous.has_joined(pod))
        if (fault := _find_fault_of_task(job, policies[pod.task], pod, dead, restarting)) is not None
        if fault.mark not in counted
    ]
    alone = rendezvous.find_closing_tasks(job, candidates) if new_faults else frozenset()
    if alone:
        new_faults = [replace(fault, irreplaceable=is_irreplaceable(job, fault.pod, alone)) for fault in new_faults]
    timed = all(fault.pod.ended is not None for fault in new_faults if fault.kind != "Disruption")
    return sorted(new_faults, key=lambda fault: _blame_order(fault, timed))


def missing_pod_fault(job: TorchJob, member: PodMember, seen: PodView | None) -> PodFault:
    """Return the fault of a pod that was deleted and has gone. `seen` is the last view of the pod if the
    deletion was announced; else the pod left no trace."""
    key = job.key
    pod = PodView(
        namespace=key.namespace,
        name=member.name,
        uid="",
        job_uid=key.uid,
        task=member.task_type.lower(),
        index=member.index,
        attempt=0,
        restart=0,
        deleting=True,
    )
    how = " without a grace period" if seen is None else _deletion_reason(seen)
    return PodFault(pod, "Disruption", f"pod {member.name} was deleted{how}")


def _find_fault_of_task(
    job: TorchJob, policy: str, pod: PodView, dead: frozenset[str], restarting: frozenset[str]
) -> PodFault | None:
    """Return the fault of a pod, with the rules for the rendezvous store and for the pods that meet there."""
    if rendezvous.is_store(job, pod) and not pod.deleting and rendezvous.cannot_serve(pod):
        message = (
            f"{describe(pod) if pod.finished else f'pod {pod.name} does not run: {pod.problem}'}; {rendezvous.REMEDY}"
        )
        return PodFault(pod, "Permanent", message, rendezvous.FAILED)
    fault = _find_fault(policy, pod, pod.node in dead, pod.uid in restarting)
    if fault is not None and grown_memory.is_outgrown(job, pod):
        return replace(fault, outgrown=True)
    lost_store = rendezvous.meets_others(job, pod) and rendezvous.lost_store(pod)
    if fault is not None and (lost_store or (rendezvous.is_store(job, pod) and _was_killed(pod))):
        return replace(fault, kind="Disruption")
    return fault


def _was_killed(pod: PodView) -> bool:
    """Return whether a signal from outside ended a program that by itself never ends."""
    return pod.phase == "Failed" and pod.reason != pod_outcome.OOM_KILLED and is_transient(pod.exit_code or 0)


def _find_fault(policy: str, pod: PodView, on_dead_node: bool, restarting: bool) -> PodFault | None:
    if on_dead_node and not pod.finished:
        return PodFault(pod, "Disruption", f"pod {pod.name} is lost with node {pod.node}")
    if pod.deleting:
        return PodFault(pod, "Disruption", f"pod {pod.name} was deleted{_deletion_reason(pod)}")
    is_restart = pod.restarted_by_node and policy != "Always" and not restarting
    if pod.finished or is_restart:
        return PodFault(pod, classify(policy, pod), describe(pod))
    return None


def classify(policy: str, pod: PodView) -> Kind:
    """Return the effect of a failed pod under a restart policy."""
    if is_disrupted(pod):
        return "Disruption"
    if pod.reason in pod_code.FOR_GOOD:
        return "Permanent"
    if policy == "Always":
        return "Retryable"
    if policy == "Never" or pod.reason in NEVER_BEGAN:
        return "Permanent"
    return "Retryable" if policy == "OnFailure" or is_retryable(pod) else "Permanent"


def _is_over_its_limit(pod: PodView) -> bool:
    """Return whether the node evicted a pod because of the pod's own limits."""
    return pod.reason == "Evicted" and not pod.disruption and pod_outcome.exceeds_own_limit(pod.message)


def is_disrupted(pod: PodView) -> bool:
    """Return whether a pod that has failed was ended by its node or by another program."""
    if _is_over_its_limit(pod):
        return False
    if pod.disruption or pod.reason in NOT_THE_JOBS_FAULT or pod.reason.startswith("OutOf"):
        return True
    return pod.exit_code is None and pod.reason not in NEVER_BEGAN | OWN_LIMITS


def is_retryable(pod: PodView) -> bool:
    """Return whether the pod may succeed next time, judging by its failure."""
    if pod.reason in (pod_outcome.OOM_KILLED, pod_end.STOPPED) or _is_over_its_limit(pod):
        return True
    code = pod.exit_code or 0
    if code != 1:
        return is_transient(code)
    return pod.lost_peer or (pod.cause is not None and is_transient(pod.cause))


def is_transient(code: int) -> bool:
    """Return whether an exit code shows that circumstances ended the program."""
    return (128 < code <= 192 and code - 128 not in OWN_SIGNALS) or code in LAUNCHERS


def _blame_order(fault: PodFault, timed: bool) -> tuple[bool, bool, bool, float, bool, bool]:
    """Return the key that sorts the decisive fault first.

    A pod that could not start comes first; a disruption comes before other faults, which it explains. A pod that lost a
    peer or was asked to stop follows from another failure, so such a pod comes last. Then the earliest failure comes
    first, a failure by a signal before a failure with a chosen exit code, and a permanent failure before other
    failures.
    """
    pod = fault.pod
    code = pod.exit_code if pod.cause is None else pod.cause
    return (
        pod.reason not in NEVER_BEGAN,
        fault.kind != "Disruption" or rendezvous.lost_store(pod),
        _follows(pod),
        pod.ended or 0.0 if timed else 0.0,
        not is_transient(code or 0),
        fault.kind != "Permanent",
    )


def _follows(pod: PodView) -> bool:
    """Return whether the end of a pod follows from the end of another pod, as far as the pod itself reports it."""
    code = pod.exit_code if pod.cause is None else pod.cause
    return pod.lost_peer or code == 128 + signal.SIGTERM


def judge(job: TorchJob, job_faults: Sequence[PodFault], most_disruptions: int, now: float) -> JobVerdict:
    """Judge the faults together, so that they cause at most one restart. `now` is in seconds since the epoch."""
    root = job_faults[0]
    if root.kind == "Permanent":
        return JobVerdict(True, root.reason, root.message, wait=_settling(job, root, now))
    early = early_failures.read(job, root.pod) if root.kind == "Retryable" else ""
    if early_failures.is_again(job, early):
        return JobVerdict(True, "PodFailed", f"{root.message}; {early_failures.AGAIN}", wait=_settling(job, root, now))
    if root.kind == "Retryable" and job.status.restart_count >= job.spec.backoff_limit:
        limit = f"no restart left of backoffLimit {job.spec.backoff_limit}"
        return JobVerdict(True, "BackoffLimitExceeded", f"{root.message}; {limit}")
    if root.kind == "Disruption" and job.status.disruptions >= most_disruptions:
        limit = f"not the job's fault, but the job was disrupted {job.status.disruptions} times before"
        return JobVerdict(True, "DisruptionLimitExceeded", f"{root.message}; {limit}")
    is_worn = rendezvous.uses_up_restarts(job, sum(rendezvous.meets_others(job, fault.pod) for fault in job_faults))
    whole = any(fault.irreplaceable or is_whole(job, fault.pod) for fault in job_faults)
    return JobVerdict(
        False,
        "Restarting",
        root.message if whole or not is_worn else f"{root.message}; {rendezvous.why_restarted(job)}",
        kind=root.kind,
        whole=whole or is_worn,
        marks=tuple(fault.mark for fault in job_faults),
        pods=tuple(fault.pod.name for fault in job_faults if root.kind == "Disruption" or fault.kind != "Disruption"),
        memory=grown_memory.raised(job, (fault.pod for fault in job_faults)),
        node=root.pod.node if blames_node(root) else "",
        early=early or (job.status.early_failure if root.kind == "Disruption" else ""),
        wait=_settling(job, root, now) if _is_consequence(root) else 0.0,
    )


def _is_consequence(root: PodFault) -> bool:
    """Return whether the fault of another pod, which may not show yet, explains a fault."""
    return _follows(root.pod) and (root.kind == "Retryable" or rendezvous.lost_store(root.pod))


def _settling(job: TorchJob, root: PodFault, now: float) -> float:
    """Return the seconds for which a failed pod waits for another pod's failure that explains its own."""
    ended, pods = root.pod.ended, sum(task.num_tasks for task in job.spec.torch_task_specs.values())
    if ended is None or not ended <= now or pods == 1 or root.pod.reason in NEVER_BEGAN:
        return 0.0
    return max(0.0, ended + SETTLING - now)


def is_irreplaceable(job: TorchJob, pod: PodView, alone: frozenset[str]) -> bool:
    """Return whether no other pod can take the place of the given pod, because the pod belongs to one of the tasks
    `alone` (`rendezvous.find_closing_tasks`) and has joined its peers.
    """
    return pod.task in alone and not static_world.has_yet_to_join(job, pod.task, pod.index)


def is_whole(job: TorchJob, pod: PodView) -> bool:
    """Return whether a fault of this pod restarts the whole job.

    The job's restartScope decides, except that the fault of a critical task always restarts the whole job and the fault
    of an auxiliary task never does. A pod that has closed the rendezvous where it met other pods always restarts the
    whole job. A pod that has yet to join the other pods never restarts the whole job.
    """
    if rendezvous.meets_others(job, pod) and rendezvous.has_closed(pod):
        return True
    if static_world.has_yet_to_join(job, pod.task, pod.index):
        return False
    task = next(task for name, task in job.spec.torch_task_specs.items() if name.lower() == pod.task)
    return task.critical or (job.spec.scope == "Job" and not task.auxiliary)


def blames_node(root: PodFault) -> bool:
    """Return whether a fault counts against the node of its pod."""
    pod = root.pod
    if root.kind != "Disruption" or rendezvous.lost_store(pod):
        return not pod.lost_peer
    reason = _disruption_reason(pod)
    makes_room = reason == pod_outcome.BY_KUBELET and pod.reason != "Evicted" and PRESSURE not in pod.disruption
    return not (pod.deleting or makes_room) and (PREEMPTED | SHUT_DOWN).isdisjoint((pod.reason, reason))


def exit_code(pod: PodView) -> int | None:
    """Return the exit code of a pod; of the process that torchrun blames for its own 1."""
    return pod.cause if pod.exit_code == 1 and pod.cause is not None else pod.exit_code


def describe(pod: PodView) -> str:
    """Return a sentence with the pod's name and its end."""
    if pod.reason in SHUT_DOWN:
        return f"pod {pod.name} was ended with its node{f' {pod.node}' * bool(pod.node)}, which was shut down"
    if pod.reason in pod_code.FOR_GOOD:
        return f"pod {pod.name} cannot start: {pod.message}"
    how = f"with exit code {pod.exit_code}" if pod.exit_code is not None else "without an exit code"
    if (through := exit_code(pod)) not in (None, pod.exit_code):
        how += f" of torchrun, whose process ended with {torchrun.signal_name(through) or through}"
    reasons = ", ".join(dict.fromkeys(filter(None, (pod.reason, _disruption_reason(pod)))))
    why = f" ({reasons})" if reasons else ""
    return f"pod {pod.name} failed {how}{why}" + (f": {pod.message}" if pod.message else "") + _advice(pod)


def _advice(pod: PodView) -> str:
    if (
        pod.reason == pod_outcome.OOM_KILLED and "limits.memory" not in pod.message
    ):  # a kubelet does not give the numbers
        return " (it used more memory than its resources.limits.memory: raise the limit, or let the program use less)"
    return f" ({pod.advice})" if pod.advice else ""


def _disruption_reason(pod: PodView) -> str:
    return pod.disruption.partition(": ")[0]


def _deletion_reason(pod: PodView) -> str:
    """Return why the pod was deleted, in the words of the program that deleted it; empty if that program gave no
    reason.
    """
    reason, _, message = pod.disruption.partition(": ")
    return (f" ({reason})" if reason else "") + (f": {message}" if message else "")
