"""Jobs, pods and groups, as the observer reads them.

One rule: the observer reads these values from the objects alone, without code of the product.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import orjson

from crds import labels
from crds.resources import quantities
from tests.faults.node import GATE, GROUP_NAME, arrival
from tests.faults.scenarios.scenario import NAMESPACE

UNITS = {"cpu": 1000}
"""The factors of resources in charges: CPU is counted in thousandths of a core."""
SENT_BACK = ("NotRunningInTime", "ExceedsQuota", "NamespaceQuota", "WaitingForScheduler", "DomainClosed")
"""The reasons for which a job gives its room back though neither its owner nor its queue demands it."""
IMPLIED = {"Worker": "Master", "Master": "AIMaster"}
"""The upstream task of each task by default, if the job has both and the spec names none."""
STORE = "Rendezvous"
"""The task that an elastic job has without declaring it. The only pod of this task runs before the workers meet
there.
"""


def _tasks_of(spec: Mapping[str, Any], admission: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the tasks of a job with their upstreams. The store of its workers is included if the admission has a
    store.
    """
    declared = spec["torchTaskSpecs"]
    tasks = {
        name: {"dependsOn": [{"taskType": IMPLIED[name]}] if IMPLIED.get(name) in declared else [], **task}
        for name, task in declared.items()
    }
    meets = "Worker" in tasks and (spec.get("torchElasticPolicy") or {}).get("mode", "Rendezvous") == STORE
    if meets and "torchElasticPolicy" in spec and not (admission and "grown" not in admission):
        worker = tasks["Worker"]
        tasks["Worker"] = {**worker, "dependsOn": [*worker["dependsOn"], {"taskType": STORE, "phase": "Running"}]}
        tasks.setdefault(STORE, {"dependsOn": []})
    return tasks


class Task:
    """A task of a job, as the observer reads it."""

    def __init__(self, name: str, spec: Mapping[str, Any], job: Mapping[str, Any], sizes: "Sizes") -> None:
        upstreams = [(each["taskType"].lower(), each.get("phase", "Running")) for each in spec["dependsOn"]]
        granted = sizes.granted if name == "Worker" else None
        self.count: int = granted or spec.get("numTasks", 1)
        self.indexes = sizes.indexes if granted else frozenset(range(self.count))
        """The indexes that the pods of the task may have."""
        enough = sizes.least if name == "Worker" else self.count
        self.least: int = min(self.count, (job.get("minMembers") or {}).get(name, enough))
        self.auxiliary: bool = spec.get("auxiliary", name in ("AIMaster", STORE))
        self.runs_after = [each for each, phase in upstreams if phase == "Running"]
        self.follows = [each for each, phase in upstreams if phase == "Succeeded"]


class Sizes:
    """The number of workers of a job: the number that its owner wants, the number that was granted, and the changes
    under way.
    """

    def __init__(self, spec: Mapping[str, Any], status: Mapping[str, Any]) -> None:
        policy, admission = spec.get("torchElasticPolicy"), status.get("admission") or {}
        self.elastic = policy is not None and "Worker" in spec["torchTaskSpecs"]
        self.static = self.elastic and (policy or {}).get("mode", STORE) != STORE
        """Whether the workers of the job have ranks, which change with the number of workers."""
        self.wish: int = spec["torchTaskSpecs"].get("Worker", {}).get("numTasks", 1)
        bound = (policy or {}).get("numMinReplicas") or (spec.get("minMembers") or {}).get("Worker")
        self.least: int = bound or (1 if self.elastic else self.wish)
        self.most: int = (policy or {}).get("numMaxReplicas") or max(self.wish, admission.get("workers") or 0)
        self.granted: int | None = admission.get("workers")
        self.indexes = _indexes(admission)
        self.grown: int = admission.get("grown") or 0
        self.scaling: Mapping[str, Any] = status.get("scaling") or {}
        self.victims = frozenset(self.scaling.get("victims") or ())
        self.idle: int = admission.get("idle") or 0
        """The number of granted workers that are not paid for."""
        self.autoscale = (policy or {}).get("autoscale") == "Idle"
        self.every: int = (policy or {}).get("resizeEverySeconds", 300)
        self.target: Mapping[str, Any] = status.get("target") or {}
        self.resized: Mapping[str, Any] = status.get("resized") or {}


def _indexes(admission: Mapping[str, Any]) -> frozenset[int]:
    """Return the indexes of the granted workers, which are written as numbers and ranges, such as 0,2-4."""
    if "indexes" not in admission:
        return frozenset(range(admission.get("workers") or 0))
    ends = [part.split("-") for part in admission["indexes"].split(",")]
    return frozenset(index for part in ends for index in range(int(part[0]), int(part[-1]) + 1))


class Job:
    """A TorchJob, as the observer reads it."""

    def __init__(self, raw: bytes) -> None:
        manifest = orjson.loads(raw)
        spec: Mapping[str, Any] = manifest["spec"]
        self.status: Mapping[str, Any] = manifest.get("status") or {}
        self.name: str = manifest["metadata"]["name"]
        self.spec_generation: int = manifest["metadata"].get("generation", 0)
        self.deleting = "deletionTimestamp" in manifest["metadata"]
        meets = (spec.get("torchElasticPolicy") or {"mode": ""}).get("mode", STORE) == STORE
        scope = "Task" if meets else "Job"
        self.whole: bool = (spec.get("restartScope") or scope) == "Job"
        self.admission: Mapping[str, Any] = self.status.get("admission") or {}
        self.sizes = Sizes(spec, self.status)
        tasks = _tasks_of(spec, self.admission)
        self.tasks = {name.lower(): Task(name, task, spec, self.sizes) for name, task in tasks.items()}
        self.suspended: bool = bool(spec.get("suspend"))
        self.phase: str = self.status.get("phase", "")
        true = (each for each in self.status.get("conditions") or () if each["status"] == "True")
        self.late = any(each["type"] == "Admitted" and each["reason"] in SENT_BACK for each in true)
        self.finished = self.phase in ("Succeeded", "Failed")
        self.generation: int = self.status.get("restartGeneration", 0)
        self.attempt: int = self.status.get("attempt", 0)
        self.not_before: str = self.status.get("restartNotBefore", "")
        self.backing_off: tuple[str, ...] = tuple(self.status.get("backingOff") or ())
        self.counts = tuple(int(self.status.get(each, 0)) for each in ("restartCount", "disruptions"))

    def before(self, task: str) -> frozenset[str]:
        """Return the tasks that must succeed before a task may begin."""
        own = self.tasks[task]
        near = frozenset(own.follows)
        return near.union(*(self.before(each) for each in (*own.follows, *own.runs_after)))


class Group:
    """A pod group, as the observer reads it."""

    def __init__(self, raw: bytes) -> None:
        manifest = orjson.loads(raw)
        metadata, spec = manifest["metadata"], manifest["spec"]
        marks = metadata.get("labels") or {}
        self.name: str = metadata["name"]
        self.job: str = marks.get(labels.JOB_UID, "") if metadata["namespace"] == NAMESPACE else ""
        self.attempt = int(marks.get(labels.ATTEMPT, 0))
        self.least: int = spec.get("minMember", 0)
        self.tasks: Mapping[str, int] = spec.get("minTaskMember") or {}


class Pod:
    """A pod, as the observer reads it."""

    def __init__(self, raw: bytes) -> None:
        manifest = orjson.loads(raw)
        found = manifest["metadata"].get("labels") or {}
        self.name: str = manifest["metadata"]["name"]
        self.uid: str = manifest["metadata"]["uid"]
        self.made: str = manifest["metadata"]["creationTimestamp"]
        self.job_name: str = found.get(labels.JOB_NAME, "")
        self.job: str = found[labels.JOB_UID]
        self.queue: str = found[labels.QUEUE]
        self.attempt = int(found[labels.ATTEMPT])
        self.restart = int(found[labels.RESTART])
        self.task: str = found[labels.TASK_TYPE]
        self.index = int(found[labels.TASK_INDEX])
        self.bound = bool(manifest["spec"].get("nodeName"))
        self.group: str = (manifest["metadata"].get("annotations") or {}).get(GROUP_NAME, "")
        self.phase: str = (manifest.get("status") or {}).get("phase") or "Pending"
        gates = [each["name"] for each in manifest["spec"].get("initContainers") or ()]
        self.gated = GATE in gates
        notes = manifest["metadata"].get("annotations") or {}
        self.opened = bool(notes.get(labels.START))
        self.rank, self.world = notes.get(labels.RANK, ""), notes.get(labels.WORLD_SIZE, "")
        self.arrived: str = arrival(manifest.get("status") or {})
        """The time at which the pod reached its gate."""
        self.deleting = "deletionTimestamp" in manifest["metadata"]
        self.end = _own_end(manifest)
        self.occupies = self.phase not in ("Succeeded", "Failed")
        self.runs = self.occupies and not _is_between_runs(manifest) and (self.opened or not self.gated)
        """Whether the main container of the pod may run."""
        self.charge = _asked(manifest["spec"])
        """The charge computed from the requests of the pod, whatever its annotations say."""


def _is_between_runs(manifest: Mapping[str, Any]) -> bool:
    """Return whether the run before the requested restart of a pod has ended. The restart was requested from the agent
    of the pod.
    """
    asked = (manifest["metadata"].get("annotations") or {}).get(labels.RESTART_CONTAINERS, "")
    before = asked.partition("/")[2]
    states = (manifest.get("status") or {}).get("containerStatuses") or ()
    return bool(before) and any(each["restartCount"] > int(before) for each in states)


def _own_end(manifest: Mapping[str, Any]) -> str:
    """Return how a pod ended, as a phase; empty if it runs, or if it was deleted before it ended.

    The observer saw the end of a pod that ended before its deletion. A pod that its node evicted has failed, whatever
    exit code its program has.
    """
    status = manifest.get("status") or {}
    phase = status.get("phase") or ""
    states = [each["state"] for each in status.get("containerStatuses") or ()]
    codes = [each["terminated"]["exitCode"] for each in states if "terminated" in each]
    if "deletionTimestamp" in manifest["metadata"] or not (codes or phase in ("Succeeded", "Failed")):
        return ""
    is_target = any(each["type"] == "DisruptionTarget" for each in status.get("conditions") or ())
    return "Failed" if is_target or phase == "Failed" or any(codes) else "Succeeded"


def _asked(spec: Mapping[str, Any]) -> Counter[str]:
    found = Counter({"pods": 1})
    for container in spec["containers"]:
        for name, amount in (container.get("resources") or {}).get("requests", {}).items():
            found[name] += quantities.parse(name, amount)
    return found
