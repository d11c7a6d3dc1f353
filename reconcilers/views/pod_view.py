"""A pod as a reconcile sees it: under 1 KB, made once at the informer's door.

One rule: nothing beyond this module reads a pod's manifest.
"""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import orjson

from crds import excerpts, integers, labels, owners
from crds.torchjob import demand
from kube.api import Manifest
from reconcilers.views import containers, pod_outcome, pod_problems, timestamps, torchrun
from reconcilers.views.pod_outcome import FINISHED
from reconcilers.views.torchrun import LastWords

LONGEST_MESSAGE = 152
"""Characters that are kept of what a pod said at its end."""
LONGEST_EXPLANATION = 30_000
"""Characters of that which are told of the pod that is to blame (`explain`)."""
LONGEST_AILMENT = 600
"""Characters of what keeps a pod from running. Many pods of a job say the same, which is kept once."""
LONGEST_ADVICE = 600
_BY_ITSELF = frozenset({"phase", "qosClass"})
"""What the status of a pod says before anybody has seen it: so do a thousand pods that were just made."""
EVICTED_BY_VOLCANO = "Evict"
"""The reason that a pod is not ready when Volcano preempts it, or reclaims what it holds."""
OVER_ITS_LIMIT = (
    "exceeds the limit",
    "exceeds the total limit of containers",
    "exceeded its local ephemeral storage limit",
)
"""What a kubelet says of a pod that it evicts because of the pod's own limits (pkg/kubelet/eviction): a template can
cause that at will. An eviction because the node is short has other words, and a DisruptionTarget condition."""
Asked = tuple[tuple[str, int], ...]
"""Amounts as a value. The pods of a job mostly ask for the same, which is kept once."""
LONGEST_ASKED = 4096
"""Bytes of the longest JSON of requests for which the answer is kept."""
MOST_CONTAINERS = 16
"""Containers of a pod of which the answer is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodView:
    """One pod of a TorchJob."""

    namespace: str
    name: str
    uid: str
    job_uid: str
    task: str
    """The task type in lower case, as in the pod's name."""
    index: int
    attempt: int
    """The admission it belongs to."""
    restart: int
    """The job's restart generation that it belongs to."""
    phase: str = "Pending"
    """Of its main container, once that has ended for good; else the pod's own."""
    lingers: bool = False
    """Whether others of its containers may run although its main one has ended for good."""
    reason: str = ""
    """Why it is in this phase: the pod's reason, else its failed container's."""
    message: str = ""
    """The last thing it said, one line."""
    exit_code: int | None = None
    """Of the main container, or of the one that failed before or beside it; None if nobody knows. Of a pod that its
    node restarts in place: of the run before this one."""
    cause: int | None = None
    """What torchrun says its process died of, as a shell's exit code; None if it says nothing."""
    lost_peer: bool = False
    """Whether its last words blame another process, or the way to it."""
    unexplained: bool = False
    """Whether more is known of its end than stands here: its message is shortened, or what ended it is further back in
    its log (`explain`)."""
    ended: float | None = None
    """When that was, in seconds since the epoch."""
    disruption: str = ""
    """Why somebody took it off its node: a word, and perhaps a sentence; empty: nobody did."""
    advice: str = ""
    """What its node says that the user can do about its failure; empty: nothing."""
    ailment: str = ""
    """What keeps it from running, by its node or its scheduler, also where its phase is Running; empty: nothing."""
    deleting: bool = False
    deadline: float | None = None
    """When a pod that is being deleted should be gone, in seconds since the epoch."""
    grace: int | None = None
    """Seconds between the request to end and the end by force: those that its deletion grants, else those that it asks
    for; None: the API server's default."""
    held: bool = False
    """Whether finalizers keep it from being gone."""
    gated: bool = False
    """Whether it has a start gate that nobody has opened yet."""
    node: str = ""
    since: float | None = None
    """When it was started on its node, or made, in seconds since the epoch."""
    version: int = 0
    """Its resourceVersion."""
    service: str = ""
    """The headless service that was made for it."""
    self_healing: bool = False
    """Whether its node restarts its main container when that fails; then it does not fail itself."""
    restarts: int = 0
    """How often its main container was restarted, whatever for."""
    settled: int = 0
    """As many of them have been seen to."""
    asked: str = ""
    """For what its containers were last restarted in place, or are to be."""
    asked_at: float | None = None
    """When, in seconds since the epoch."""
    restarted: str = ""
    """For what its node last did so."""
    not_restarted: str = ""
    """For what it could not, and why."""
    asks: Asked = ()
    """What it asks for as it was made, by canonical resource name, sorted."""

    @property
    def started(self) -> bool:
        """Whether its node has begun with it, and it is to stay: its containers run, or are started again."""
        return self.phase == "Running" and not self.deleting

    @property
    def running(self) -> bool:
        """Whether its main container really runs, and it is to stay."""
        return self.started and not self.ailment

    @property
    def finished(self) -> bool:
        """Whether it has ended for good, as far as its job is concerned."""
        return self.phase in FINISHED


def occupies(pod: PodView) -> bool:
    """Whether a pod takes room: until Kubernetes calls it Succeeded or Failed, or it is gone. A terminating pod
    occupies, and one of which any container runs."""
    return pod.lingers or not pod.finished


def trim(manifest: Manifest) -> PodView:
    """What matters of a pod that carries our labels."""
    metadata, spec, status = manifest["metadata"], manifest["spec"], manifest.get("status") or {}
    marks: Mapping[str, str] = metadata.get("labels") or {}
    phase = pod_outcome.of(manifest)
    return PodView(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        job_uid=owners.job_uid(metadata),
        task=marks.get(labels.TASK_TYPE, ""),
        index=_number(marks, labels.TASK_INDEX),
        attempt=_number(marks, labels.ATTEMPT),
        restart=_number(marks, labels.RESTART),
        phase=phase,
        lingers=phase in FINISHED and status.get("phase") not in FINISHED,
        deleting="deletionTimestamp" in metadata,
        gated=_is_gated(metadata, spec),
        deadline=timestamps.seconds(metadata.get("deletionTimestamp")),
        grace=_grace(metadata, spec),
        held=bool(metadata.get("finalizers")),
        node=spec.get("nodeName") or "",
        since=timestamps.seconds(status.get("startTime") or metadata.get("creationTimestamp")),
        version=version(manifest),
        service=metadata["name"] if spec.get("subdomain") == metadata["name"] else "",
        asks=asks(spec),
        **_restarts(metadata, spec, status),
        **(_told(manifest, phase) if status.keys() - _BY_ITSELF else {}),
    )


def _grace(metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> int | None:
    granted = metadata.get("deletionGracePeriodSeconds") if "deletionTimestamp" in metadata else None
    found = spec.get("terminationGracePeriodSeconds") if granted is None else granted
    return found if isinstance(found, int) else None


def asks(spec: Mapping[str, Any]) -> Asked:
    """What a pod asks for (`demand.pod_demand`); of too many resources one more than a job can be charged for."""
    if sum(len(spec.get(name) or ()) for name in ("containers", "initContainers")) > MOST_CONTAINERS:
        return _counted(spec)
    parts = {name: [_asking(each) for each in spec.get(name) or ()] for name in ("containers", "initContainers")}
    text = orjson.dumps(parts | {"resources": spec.get("resources"), "overhead": spec.get("overhead")})
    return _asked(text) if len(text) <= LONGEST_ASKED else _counted(spec)


def _asking(container: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"resources": container.get("resources"), "restartPolicy": container.get("restartPolicy")}


@lru_cache(1024)
def _asked(text: bytes) -> Asked:
    """Of a pod spec without all the rest: it is the same for all pods of a task, at each of their many changes."""
    return _counted(orjson.loads(text))


def _counted(spec: Mapping[str, Any]) -> Asked:
    try:
        found = demand.pod_demand(spec)
    except (ValueError, TypeError, AttributeError):  # no API server takes it today
        return ()
    return tuple(sorted(found.items())[: demand.MOST_NAMES + 1])


def _told(manifest: Manifest, phase: str) -> dict[str, Any]:
    """What its node, the scheduler, or who takes it away says of it."""
    spec, status = manifest["spec"], manifest["status"]
    return {"ailment": _ailment(manifest, phase), **_conditions(status), **_end(spec, status, phase)}


def _ailment(manifest: Manifest, phase: str) -> str:
    """What there is to say against a pod that does not run, but is to. Many of a job say the same: it is kept once."""
    told = (manifest.get("status") or {}).keys() & ("conditions", "initContainerStatuses", "containerStatuses")
    if not told or phase in FINISHED or "deletionTimestamp" in manifest["metadata"] or pod_problems.is_up(manifest):
        return ""
    return sys.intern(excerpts.excerpt(str(pod_problems.of(manifest) or "Waiting"), LONGEST_AILMENT))


def _conditions(status: Mapping[str, Any]) -> dict[str, Any]:
    found = {each["type"]: each for each in status.get("conditions") or ()}
    disruption = _disruption(found.get("DisruptionTarget", {}), found.get("Ready", {}))
    return {"disruption": disruption} | _in_place(found.get(labels.RESTARTED, {})) | _advice(found)


def _advice(conditions: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Kept once: the pods of a job mostly miss the same file."""
    condition = conditions.get(labels.FOLDER_UNKNOWN)
    return (
        {"advice": sys.intern(excerpts.excerpt(str(condition.get("message") or ""), LONGEST_ADVICE))}
        if condition
        else {}
    )


def _disruption(target: Mapping[str, Any], ready: Mapping[str, Any]) -> str:
    """Who takes a pod off its node says so with a condition; Volcano does with the one that it is not ready."""
    evicted = ready.get("status") == "False" and ready.get("reason") == EVICTED_BY_VOLCANO
    said = target if target.get("status") == "True" else ready if evicted else None
    if said is None:
        return ""
    reason, message = said.get("reason") or "DisruptionTarget", _last_line(said.get("message") or "", LONGEST_MESSAGE)
    return sys.intern(f"{reason}: {message}" if message else reason)


def _in_place(condition: Mapping[str, Any]) -> dict[str, str]:
    """What a node says of the restart it was asked for last: the message is what for."""
    what_for, why = condition.get("message") or "", condition.get("reason") or "without a reason"
    match condition.get("status"):
        case "True":
            return {"restarted": what_for}
        case "False":
            return {"not_restarted": f"{what_for}: {why}"}
    return {}


def _restarts(metadata: Mapping[str, Any], spec: Mapping[str, Any], status: Mapping[str, Any]) -> dict[str, Any]:
    notes: Mapping[str, str] = metadata.get("annotations") or {}
    main = containers.main(spec)
    return {
        "self_healing": spec.get("restartPolicy") == "OnFailure" or bool(main.get("restartPolicyRules")),
        "restarts": _of(main["name"], status).get("restartCount", 0),
        "settled": max(0, _number(notes, labels.RESTARTS_SETTLED)),
        "asked": notes.get(labels.RESTART_CONTAINERS, ""),
        "asked_at": timestamps.seconds(notes.get(labels.RESTART_ASKED)),
    }


def _end(spec: Mapping[str, Any], status: Mapping[str, Any], phase: str) -> dict[str, Any]:
    """How its containers ended, and the last thing they said."""
    other, ended = _ended(spec, status, phase)
    said, code = ended.get("message") or "", ended.get("exitCode")
    told = torchrun.last_words(said)
    message = _message(other, told, status, LONGEST_MESSAGE)
    return {
        "reason": status.get("reason") or ended.get("reason") or "",
        "message": message,
        "exit_code": code,
        "cause": torchrun.cause(said) if code else None,
        "lost_peer": bool(code) and told.lost_peer,
        "unexplained": (bool(code) and told.more) or message != _message(other, told, status, LONGEST_EXPLANATION),
        "ended": timestamps.seconds(ended.get("finishedAt")),
    }


def _message(other: str, told: LastWords, status: Mapping[str, Any], most: int) -> str:
    """What a pod said at its end, in one line; `other`: the container that said it, if that is not the main one."""
    of_pod = status.get("message") or ""
    # That a pod has gone beyond its limits nothing hides that its containers say.
    words = told.text if told.text and not over_its_limit(of_pod) else _last_line(of_pod, LONGEST_EXPLANATION)
    return excerpts.excerpt(": ".join(filter(None, (f"container {other}" if other else "", words))), most)


def speaker(manifest: Manifest) -> str:
    """The container whose end is the pod's; its log says more."""
    spec, status = manifest["spec"], manifest.get("status") or {}
    return _ended(spec, status, pod_outcome.of(manifest))[0] or str(containers.main(spec)["name"])


def explain(pod: PodView, manifest: Manifest, log: str) -> PodView:
    """The pod with all that is known of its end: its whole message, and what the end of its log says, if that says
    what ended it."""
    spec, status, phase = manifest["spec"], manifest.get("status") or {}, pod_outcome.of(manifest)
    other, ended = _ended(spec, status, phase)
    told = torchrun.last_words(ended.get("message") or "")
    if log and told.more:
        told = torchrun.last_words(log)
    message = _message(other, told, status, LONGEST_EXPLANATION)
    return replace(pod, message=message, lost_peer=told.lost_peer, unexplained=False)


def wants_log(manifest: Manifest) -> bool:
    """Whether what ended a pod is further back in its log than its status goes."""
    _, ended = _ended(manifest["spec"], manifest.get("status") or {}, pod_outcome.of(manifest))
    return torchrun.last_words(ended.get("message") or "").more


def over_its_limit(message: str) -> bool:
    """Whether a kubelet says of an evicted pod that it went beyond limits of its own."""
    return any(each in message for each in OVER_ITS_LIMIT)


def _is_gated(metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> bool:
    has = any(each["name"] == containers.GATE for each in spec.get("initContainers") or ())
    return has and not (metadata.get("annotations") or {}).get(labels.START)


def version(manifest: Manifest) -> int:
    """An object's resourceVersion; 0 if the server's are not numbers."""
    text = manifest["metadata"].get("resourceVersion", "")
    return integers.bounded(text, 0)


def _number(marks: Mapping[str, str], name: str) -> int:
    """A label that is not ours to trust: -1 matches nothing."""
    return integers.bounded(marks.get(name), -1)


def _ended(spec: Mapping[str, Any], status: Mapping[str, Any], phase: str) -> tuple[str, Mapping[str, Any]]:
    """How the pod ended: with its main container's failure, else with another one's, which is named, unless that one
    succeeded; while the pod goes on: the main one's end before."""
    main = containers.main(spec)["name"]
    state = _of(main, status).get("state" if phase in FINISHED else "lastState") or {}
    ended: Mapping[str, Any] = state.get("terminated") or {}
    if phase != "Failed" or ended.get("exitCode"):
        return "", ended
    others = (each for each in _terminations(status) if each[0] != main and each[1].get("exitCode"))
    return next(others, ("", ended))


def _terminations(status: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for field in ("initContainerStatuses", "containerStatuses"):
        for each in status.get(field) or ():
            terminated = (each.get("state") or {}).get("terminated")
            if terminated:
                yield each["name"], terminated


def _of(name: str, status: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the status says of one main container."""
    return next((each for each in status.get("containerStatuses") or () if each["name"] == name), {})


def _last_line(text: str, most: int) -> str:
    """The last line of a text that says something."""
    lines = (line.strip() for line in reversed(text.splitlines()))
    return excerpts.excerpt(next(filter(None, lines), ""), most)
