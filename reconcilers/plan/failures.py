"""What a failed or lost pod means for its job.

One rule: pure. What happened counts once: what was counted is named in `status.replacing`, or, after a restart of the
whole job, its pod is of an earlier generation.

    what happened                                       counts as
    it was deleted, evicted, preempted, not taken by    a disruption, whatever the policy: it is replaced, up to
    its node; its node is lost, was shut down; nobody   `most_disruptions` of the job
    knows its exit code
    it could not be started                             fails the job: it could not be started next time
    it failed: restartPolicy Never                      fails the job
               restartPolicy ExitCode                   by the code, below
               restartPolicy OnFailure                  retryable, up to backoffLimit restarts of the job
               restartPolicy Always                     the same

    code           restartPolicy ExitCode
    0              fails      the pod ran out of a limit of its own, though its program was content
    1-127          fails      the program's own word, and the shell's: 2 usage, 126 not executable, 127 not found
    128            fails      no signal: an invalid argument of exit, or a container that could not be started
    129-192        is retried a signal: sent from outside, or by circumstances: out of memory (137), a peer that is
                              gone (134: NCCL's watchdog aborts; 141), full shared memory (135), a user's wish (138)
      132 133 136  fails      but for those that a program's own deeds bring about: SIGILL, SIGTRAP, SIGFPE,
      139 152 153             SIGSEGV, SIGXCPU, SIGXFSZ, SIGSYS: the same next time
      159
    193-255        fails      the program's own word
      241 247 250  is retried but for what a launcher in Python makes of a child's -15, -9 and -6

An exit code of 1 is looked through: what torchrun says its process died of is judged in its place, and who says that
a peer was lost did not fail by itself. OOMKilled is the job's own, and retried; so is an eviction because the pod used
more local storage than its own limits allow. `backoff` says how long a job waits before its pods are made again.

Of several that failed, the one that failed first is to blame; it alone is judged. A disruption explains the others. A
pod that lost the connection to a peer, or was told to stop, is to blame only if no other one is: its peer may have
failed later by the clock, because it had more to tidy up.
"""

import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from crds.torchjob.torchjob import TorchJob
from reconcilers.views import pod_view, torchrun
from reconcilers.views.pod_view import PodView

NEVER_BEGAN = frozenset({"ContainerCannotRun", "NotSupported", "StartError"})
"""Reasons of containers that could not be started, and of pods that the embedded node cannot run."""
PREEMPTED = frozenset({"Preempting", "PreemptionByScheduler", "Evict", "EvictionByEvictionAPI"})
"""Reasons that say nothing against the node: others wanted the room, or somebody empties it."""
SHUT_DOWN = frozenset({"NodeShutdown", "Shutdown", "Terminated"})
"""Reasons of pods whose node was shut down: nobody's failure, nor the node's."""
NOT_THE_JOBS_FAULT = (
    PREEMPTED
    | SHUT_DOWN
    | {"ContainerStatusUnknown", "Evicted", "NodeAffinity", "NodeLost", "UnexpectedAdmissionError"}
)
"""Reasons a node or its scheduler gives for a pod it ended or did not take; `OutOf<resource>` besides."""
OWN_LIMITS = frozenset({"DeadlineExceeded"})
"""Reasons without an exit code that are the job's own."""
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

SETTLING = 2.0
"""Seconds that an exit code which would fail the job waits for a better explanation by another pod; so does the end of
a pod that follows from that of another one."""

Kind = Literal["Permanent", "Retryable", "Disruption"]


@dataclass(frozen=True, slots=True)
class Fault:
    """One pod that failed or is lost."""

    pod: PodView
    kind: Kind
    message: str

    @property
    def mark(self) -> str:
        """What it is counted by."""
        return f"{self.pod.uid}/{self.pod.restarts}" if _restarted_by_node(self.pod) else self.pod.uid


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of the job: it fails for good, or its pods are restarted."""

    permanent: bool
    reason: str
    message: str
    kind: Kind = "Permanent"
    whole: bool = False
    """Whether all of the job is restarted; else only these pods."""
    marks: tuple[str, ...] = ()
    pods: tuple[str, ...] = ()
    """The names of these pods; without those that were disrupted, if the job itself failed."""
    node: str = ""
    """The node to blame."""
    wait: float = 0.0
    """Seconds after which it is worth another look, instead of anything else."""


def faults(job: TorchJob, pods: Iterable[PodView], dead: frozenset[str], restarting: frozenset[str]) -> Sequence[Fault]:
    """What has happened to the job's pods and was not counted yet, the one to blame first.

    `dead` are nodes; `restarting` are the uids of pods whose containers are being restarted on purpose.
    """
    policies = {name.lower(): task.restart_policy for name, task in job.spec.torch_task_specs.items()}
    counted = frozenset(job.status.replacing)
    found = [
        fault
        for pod in pods
        if pod.restart == job.status.restart_generation and pod.uid not in counted and pod.phase != "Succeeded"
        if (fault := _fault(policies[pod.task], pod, pod.node in dead, pod.uid in restarting)) is not None
        if fault.mark not in counted
    ]
    timed = all(each.pod.ended is not None for each in found if each.kind != "Disruption")
    return sorted(found, key=lambda fault: _blame(fault, timed))


def vanished(job: TorchJob, name: str, task_type: str) -> Fault:
    """A pod that was there, and of which nothing is left to be seen."""
    key = job.key
    gone = PodView(
        namespace=key.namespace,
        name=name,
        uid="",
        job_uid=key.uid,
        task=task_type.lower(),
        index=0,
        attempt=0,
        restart=0,
        deleting=True,
    )
    return Fault(gone, "Disruption", f"pod {name} was deleted at once")


def _fault(policy: str, pod: PodView, lost: bool, restarting: bool) -> Fault | None:
    if lost and not pod.finished:
        return Fault(pod, "Disruption", f"pod {pod.name} is lost with node {pod.node}")
    if pod.deleting:
        return Fault(pod, "Disruption", f"pod {pod.name} was deleted{_by(pod)}")
    again = _restarted_by_node(pod) and policy != "Always" and not restarting
    if pod.phase == "Failed" or again:
        return Fault(pod, kind(policy, pod), describe(pod))
    return None


def _restarted_by_node(pod: PodView) -> bool:
    """Whether its node has restarted its main container, for a reason that nobody has seen to."""
    return pod.self_healing and not pod.finished and not pod.deleting and pod.restarts > pod.settled


def kind(policy: str, pod: PodView) -> Kind:
    """What a failed pod under a restart policy counts as."""
    if _disrupted(pod):
        return "Disruption"
    if policy == "Always":
        return "Retryable"
    if policy == "Never" or pod.reason in NEVER_BEGAN:
        return "Permanent"
    return "Retryable" if policy == "OnFailure" or retried(pod) else "Permanent"


def _is_over_its_limit(pod: PodView) -> bool:
    """Whether its node has evicted a pod because of the pod's own limits."""
    return pod.reason == "Evicted" and not pod.disruption and pod_view.over_its_limit(pod.message)


def _disrupted(pod: PodView) -> bool:
    if _is_over_its_limit(pod):
        return False
    if pod.disruption or pod.reason in NOT_THE_JOBS_FAULT or pod.reason.startswith("OutOf"):
        return True
    return pod.exit_code is None and pod.reason not in NEVER_BEGAN | OWN_LIMITS


def retried(pod: PodView) -> bool:
    """Whether the way a pod failed may be another one next time."""
    if pod.reason == "OOMKilled" or _is_over_its_limit(pod):
        return True
    code = pod.exit_code or 0
    if code != 1:
        return is_passing(code)
    return pod.lost_peer or (pod.cause is not None and is_passing(pod.cause))


def is_passing(code: int) -> bool:
    """Whether an exit code says that circumstances ended the program."""
    return (128 < code <= 192 and code - 128 not in OWN_SIGNALS) or code in LAUNCHERS


def _blame(fault: Fault, timed: bool) -> tuple[bool, bool, bool, float, bool, bool]:
    """Who could not even start is sure of it; a disruption explains the others; a pod that lost its peers, or was told
    to stop, follows another one; then who failed first, by a signal rather than by a word of its own, for good rather
    than not."""
    pod = fault.pod
    code = pod.exit_code if pod.cause is None else pod.cause
    return (
        pod.reason not in NEVER_BEGAN,
        fault.kind != "Disruption",
        _follows(pod),
        pod.ended or 0.0 if timed else 0.0,
        not is_passing(code or 0),
        fault.kind != "Permanent",
    )


def _follows(pod: PodView) -> bool:
    """Whether the end of a pod follows from that of another one, as far as it says so itself."""
    code = pod.exit_code if pod.cause is None else pod.cause
    return pod.lost_peer or code == 128 + signal.SIGTERM


def judge(job: TorchJob, found: Sequence[Fault], most_disruptions: int, now: float) -> Verdict:
    """What faults mean together: one restart at most; `now` is in seconds since the epoch."""
    root = found[0]
    if root.kind == "Permanent":
        return Verdict(True, "PodFailed", root.message, wait=_settling(job, root, now))
    if root.kind == "Retryable" and job.status.restart_count >= job.spec.backoff_limit:
        limit = f"no restart left of backoffLimit {job.spec.backoff_limit}"
        return Verdict(True, "BackoffLimitExceeded", f"{root.message}; {limit}")
    if root.kind == "Disruption" and job.status.disruptions >= most_disruptions:
        limit = f"not the job's fault, but it was disrupted {job.status.disruptions} times before"
        return Verdict(True, "DisruptionLimitExceeded", f"{root.message}; {limit}")
    return Verdict(
        False,
        "Restarting",
        root.message,
        kind=root.kind,
        whole=any(is_whole(job, each.pod) for each in found),
        marks=tuple(each.mark for each in found),
        pods=tuple(each.pod.name for each in found if root.kind == "Disruption" or each.kind != "Disruption"),
        node=root.pod.node if _blames_node(root) else "",
        wait=_settling(job, root, now) if root.kind == "Retryable" and _follows(root.pod) else 0.0,
    )


def _settling(job: TorchJob, root: Fault, now: float) -> float:
    """How long a pod of several that failed by its own word waits for another one that explains it."""
    ended, pods = root.pod.ended, sum(each.num_tasks for each in job.spec.torch_task_specs.values())
    if ended is None or not ended <= now or pods == 1 or root.pod.reason in NEVER_BEGAN:
        return 0.0
    return max(0.0, ended + SETTLING - now)


def is_whole(job: TorchJob, pod: PodView) -> bool:
    """Whether a fault of this pod restarts all of the job: as its scope says, but always that of a critical task, and
    never that of one beside the training."""
    task = next(each for name, each in job.spec.torch_task_specs.items() if name.lower() == pod.task)
    return task.critical or (job.spec.scope == "Job" and not task.auxiliary)


def _blames_node(root: Fault) -> bool:
    pod = root.pod
    if root.kind == "Disruption":
        return not pod.deleting and (PREEMPTED | SHUT_DOWN).isdisjoint((pod.reason, _disrupted_by(pod)))
    return not pod.lost_peer


def describe(pod: PodView) -> str:
    """A sentence that names the pod and how it ended."""
    if pod.reason in SHUT_DOWN:
        return f"pod {pod.name} was ended with its node{f' {pod.node}' * bool(pod.node)}, which was shut down"
    how = f"with exit code {pod.exit_code}" if pod.exit_code is not None else "without an exit code"
    through = pod.cause if pod.exit_code == 1 and pod.cause not in (None, 1) else None
    if through is not None:
        how += f" of torchrun, whose process ended with {torchrun.name(through) or through}"
    reasons = ", ".join(dict.fromkeys(filter(None, (pod.reason, _disrupted_by(pod)))))
    why = f" ({reasons})" if reasons else ""
    return f"pod {pod.name} failed {how}{why}" + (f": {pod.message}" if pod.message else "") + _advice(pod)


def _advice(pod: PodView) -> str:
    if pod.reason == "OOMKilled" and "limits.memory" not in pod.message:  # a node of Kubernetes gives no numbers
        return " (it used more memory than its resources.limits.memory: raise the limit, or let the program use less)"
    return f" ({pod.advice})" if pod.advice else ""


def _disrupted_by(pod: PodView) -> str:
    return pod.disruption.partition(": ")[0]


def _by(pod: PodView) -> str:
    """Why it was deleted, in the words of who did it, if anybody says."""
    reason, _, message = pod.disruption.partition(": ")
    return (f" ({reason})" if reason else "") + (f": {message}" if message else "")
