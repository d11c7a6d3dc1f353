"""Jobs, pods and groups, as the observer reads them.

One rule: the observer reads them from the objects alone, without code of the product.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import orjson

from crds import labels
from crds.resources import quantities
from tests.faults.node import GROUP_NAME
from tests.faults.scenarios.scenario import NAMESPACE

UNITS = {"cpu": 1000}
"""The factors of resources in charges: CPU is counted in thousandths of a core."""
SENT_BACK = ("NotRunningInTime", "ExceedsQuota", "NamespaceQuota")
"""The reasons for which a job gives its room back though neither its owner nor its queue demands it."""
IMPLIED = {"Worker": "Master", "Master": "AIMaster"}
"""The upstream task of each task by default, if the job has both and the spec names none."""
STORE = "Rendezvous"
"""The task that an elastic job has without declaring it. Its one pod is up before the workers meet there."""


def _tasks_of(spec: Mapping[str, Any], admission: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the tasks of a job with their upstreams, and with the store of its workers if its admission has one."""
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

    def __init__(self, name: str, spec: Mapping[str, Any], job: Mapping[str, Any]) -> None:
        upstreams = [(each["taskType"].lower(), each.get("phase", "Running")) for each in spec["dependsOn"]]
        self.count: int = spec.get("numTasks", 1)
        self.least: int = min(self.count, (job.get("minMembers") or {}).get(name, self.count))
        self.auxiliary: bool = spec.get("auxiliary", name in ("AIMaster", STORE))
        self.runs_after = [each for each, phase in upstreams if phase == "Running"]
        self.follows = [each for each, phase in upstreams if phase == "Succeeded"]


class Job:
    """A TorchJob, as the observer reads it."""

    def __init__(self, raw: bytes) -> None:
        manifest = orjson.loads(raw)
        spec: Mapping[str, Any] = manifest["spec"]
        self.status: Mapping[str, Any] = manifest.get("status") or {}
        self.name: str = manifest["metadata"]["name"]
        self.whole: bool = (spec.get("restartScope") or "Job") == "Job"
        self.admission: Mapping[str, Any] = self.status.get("admission") or {}
        tasks = _tasks_of(spec, self.admission)
        self.tasks = {name.lower(): Task(name, task, spec) for name, task in tasks.items()}
        self.suspended: bool = bool(spec.get("suspend"))
        self.phase: str = self.status.get("phase", "")
        true = (each for each in self.status.get("conditions") or () if each["status"] == "True")
        self.late = any(each["type"] == "Admitted" and each["reason"] in SENT_BACK for each in true)
        self.finished = self.phase in ("Succeeded", "Failed")
        self.generation: int = self.status.get("restartGeneration", 0)
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
        self.deleting = "deletionTimestamp" in manifest["metadata"]
        self.occupies = self.phase not in ("Succeeded", "Failed")
        self.charge = _asked(manifest["spec"])
        """The charge computed from its requests, whatever its annotations say."""


def _asked(spec: Mapping[str, Any]) -> Counter[str]:
    found = Counter({"pods": 1})
    for container in spec["containers"]:
        for name, amount in (container.get("resources") or {}).get("requests", {}).items():
            found[name] += quantities.parse(name, amount)
    return found
