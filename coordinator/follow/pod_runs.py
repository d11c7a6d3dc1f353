"""The runs of a pod's containers, from its status.

One rule: a run is the n-th start of one container in one pod, counted from 0 as the pod's restartCount counts.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from crds import labels
from crds.torchjob import launched_processes
from kube.api import Manifest
from reconcilers.views import containers, pod_problems

_COUNTED = ("CrashLoopBackOff", "Restarting")
"""Reasons of a waiting container whose restartCount is that of the run that ended; else it counts the run to come."""
FINISHED = ("Succeeded", "Failed")
_ORDINARY = (*pod_problems.STARTUP_REASONS, *_COUNTED, "Pending", "StartGate", "Terminating")
"""Reasons of a pod that does not run, about which nobody has to do anything."""


@dataclass(frozen=True, slots=True)
class RunCounts:
    """The facts in a pod's status about the runs of one container."""

    last: int = -1
    """The number of the last run that has begun; -1 if none has."""
    ended: bool = False
    """Whether that run has ended."""
    waiting: bool = True
    """Whether the container waits to be started (again)."""
    exit_code: int | None = None

    def is_over(self, number: int) -> bool:
        """Return whether a run has ended."""
        return number < self.last or (number == self.last and self.ended)

    def is_previous(self, number: int) -> bool | None:
        """Return whether a server gives the output of a run as the output of the previous run, or of the present run;
        None if the server gives neither.
        """
        if number == self.last:
            return False
        return True if number == self.last - 1 and not self.waiting else None


@dataclass(frozen=True, slots=True)
class PodRuns:
    """A pod of a job, as its log is read."""

    name: str
    uid: str
    task: str
    index: int
    main: str
    """The name of the main container."""
    phase: str
    created: str
    containers: Mapping[str, RunCounts]
    init: tuple[str, ...] = ()
    terminating: bool = False
    is_gone: bool = False
    problem: str = ""
    """Why a pod that has not started does not start, in words; empty if that takes only its time."""

    @property
    def label(self) -> str:
        """The pod's short name, for each of its lines."""
        return f"{self.task}-{self.index}"

    def of(self, container: str) -> RunCounts:
        """Return the runs of a container."""
        return self.containers.get(container, RunCounts())

    def is_over(self, container: str, number: int) -> bool:
        """Return whether a run of a container has ended."""
        return self.is_gone or self.of(container).is_over(number)

    @property
    def is_finished(self) -> bool:
        """Whether nothing will run in the pod any more."""
        return self.is_gone or self.phase in FINISHED

    def selected(self, container: str) -> tuple[str, ...]:
        """Return the containers whose output is shown: the named container, else the main container, after the init
        containers that failed."""
        if container:
            return (container,)
        failed = (name for name in self.init if self.of(name).exit_code not in (None, 0))
        return (*failed, self.main)


def read(pod: Manifest) -> PodRuns:
    """Return the runs of a pod of a TorchJob."""
    metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
    marks = metadata.get("labels") or {}
    inits = [each["name"] for each in spec.get("initContainers") or ()]
    listed = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    index = str(marks.get(labels.TASK_INDEX, "0"))
    problem = pod_problems.find_problem(pod) if status.get("phase") == "Pending" else None
    return PodRuns(
        name=metadata["name"],
        uid=metadata["uid"],
        task=str(marks.get(labels.TASK_TYPE, "")),
        index=int(index) if index.isdecimal() else 0,
        main=containers.main(spec)["name"],
        phase=str(status.get("phase") or ""),
        created=str(metadata.get("creationTimestamp") or ""),
        containers={each["name"]: _runs(each) for each in listed},
        init=tuple(name for name in inits if name != containers.RESTART_AGENT),
        terminating="deletionTimestamp" in metadata,
        problem=str(problem) if problem is not None and problem.reason not in _ORDINARY else "",
    )


def of_list(runs: Iterable[Mapping[str, Any]]) -> list[PodRuns]:
    """Return the pods whose runs an embedded API server lists (`crds.api_resources.job_logs_path`), oldest first."""
    pods: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for run in runs:
        pods[str(run["podUid"])].append(run)
    return [_of_runs(uid, of_pod) for uid, of_pod in pods.items()]


def _of_runs(uid: str, runs: Sequence[Mapping[str, Any]]) -> PodRuns:
    first, mains = runs[0], [str(run["container"]) for run in runs if not run["init"]]
    last = {str(run["container"]): run for run in runs}
    return PodRuns(
        name=str(first["pod"]),
        uid=uid,
        task=str(first["task"]),
        index=int(first["index"]),
        main=launched_processes.MAIN if launched_processes.MAIN in mains or not mains else mains[0],
        phase="",
        created=str(first.get("startedAt") or ""),
        containers={name: _listed(run) for name, run in last.items()},
        init=tuple(dict.fromkeys(str(run["container"]) for run in runs if run["init"])),
        is_gone=all(run["kept"] for run in runs),
    )


def _listed(run: Mapping[str, Any]) -> RunCounts:
    ended = run.get("endedAt") is not None or bool(run["kept"])
    return RunCounts(int(run["restart"]), ended, waiting=False, exit_code=run.get("exitCode"))


def _runs(status: Mapping[str, Any]) -> RunCounts:
    count, state = int(status.get("restartCount") or 0), status.get("state") or {}
    if "running" in state:
        return RunCounts(count, waiting=False)
    if "terminated" in state:
        return RunCounts(count, ended=True, waiting=False, exit_code=state["terminated"].get("exitCode"))
    before = (status.get("lastState") or {}).get("terminated")
    if before is None:
        return RunCounts()
    counted = (state.get("waiting") or {}).get("reason") in _COUNTED
    return RunCounts(count if counted else max(0, count - 1), ended=True, exit_code=before.get("exitCode"))
