"""The output of a job: as it is now, or followed to the end of the job.

One rule: every line once. Restarts, replaced pods and lost connections do not end the output; only the end of the job
does.
"""

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

from coordinator.errors import CoordinatorError
from coordinator.follow import endings, job_feed, job_objects, pod_runs, present_logs, wait_reasons
from coordinator.follow.log_lines import LogLine, LogSelection, RawLine
from coordinator.follow.log_source import LogSource
from coordinator.follow.pod_runs import PodRuns
from coordinator.follow.present_logs import JobMember, NoOutput
from coordinator.follow.slot_reader import SlotReader
from coordinator.follow.wait_reasons import RestartCounts
from crds.api_resources import PODS
from crds.keys import JobKey
from crds.torchjob import torchjob
from kube import errors
from kube.api import Cluster, Manifest
from kube.informer import Informer

MOST_MEMBERS = 512
"""The most pods that are followed at once; each takes a connection and a thread."""
_BUFFERED = 16
"""The most pieces of output that wait for a slow reader. Then the servers wait, too."""
_LOOK_SECONDS = 0.2
"""How often a reader looks whether it is to stop; no request is made for that."""
_STATES_SECONDS = 1.0
"""How often the newest state of a line is shown that has no end yet."""
_STOP_SECONDS = 1.0


class StatesOfJob(Iterator[Manifest | None], Protocol):
    """The states of one job: the present one, then each change; None once the job is deleted, as the last one."""

    def close(self) -> None:
        """End the iteration, from any thread."""


class JobStates(Protocol):
    """A source of the states of jobs, such as a `JobFeed`."""

    def changes(self, key: JobKey) -> StatesOfJob:
        """Return the states of a job."""


Explain = Callable[[Manifest], str]
"""A function that says why a job waits, in words."""


def follow(
    cluster: Cluster,
    feed: JobStates,
    key: JobKey,
    selection: LogSelection,
    stop: threading.Event,
    *,
    explain: Explain = wait_reasons.explain,
) -> Iterator[LogLine]:
    """Yield the output of a job, line by line; a line without a pod is a note of torchq about the job.

    Without `selection.follow`, the iteration ends with the present end of the output. With `follow`, the output ends
    with the job, or once `stop` is set. A slow reader slows the reading down.

    Raise NoOutput for a job that has no output, and with `follow` only if it never will have; and any ClusterError.
    """
    job = torchjob.parse(job_objects.read(cluster, key))
    member = None if selection.all else present_logs.find_member(job, selection)
    if selection.follow and not job.is_finished:
        yield from _Following(cluster, feed, key, selection, member, stop, explain).lines()
        return
    source = LogSource(cluster, key)
    chosen = present_logs.select([pod for pod in source.all_pods() if _is_selected(pod, member)], selection)
    if not chosen:
        raise NoOutput(_why_nothing(cluster, key, selection, member))
    yield from present_logs.read(source, chosen, selection, stop)


def _is_selected(pod: PodRuns, member: JobMember | None) -> bool:
    return member is None or (pod.task, pod.index) == (member.task, member.number)


def _why_nothing(cluster: Cluster, key: JobKey, selection: LogSelection, member: JobMember | None) -> str:
    item = job_objects.read(cluster, key)
    what = f"pod {member.pod}" if member is not None else f"job {key.namespace}/{key.name}"
    if selection.previous:
        return f"{what} has no output of an earlier run"
    if selection.run is not None:
        return f"{what} has no run {selection.run}"
    job = torchjob.parse(item)
    if job.is_finished and job.status.attempt:
        why = "torchq deletes those that still run at the end of the job; others a drain or a person has deleted"
        if job.spec.clean_pod_policy == "All":
            why = "cleanPodPolicy All deletes them at the end of the job"
        return f"the output of {what} is gone with its pods: {why}; the job is {_state(item)}"
    return f"{what} has no output yet: the job is {_state(item)}"


def _state(item: Manifest) -> str:
    phase = (item.get("status") or {}).get("phase") or "Pending"
    reason = wait_reasons.explain(item)
    return reason if reason.startswith(phase) else f"{phase}, {reason}" if wait_reasons.is_waiting(item) else phase


class _Following:
    """The threads that follow one job: one for the job, one for its pods, and one for each member that is selected."""

    def __init__(
        self,
        cluster: Cluster,
        feed: JobStates,
        key: JobKey,
        selection: LogSelection,
        member: JobMember | None,
        stop: threading.Event,
        explain: Explain,
    ) -> None:
        self._key = key
        self._selection = selection
        self._asked_to_stop = stop
        self._explain = explain
        self._source = LogSource(cluster, key)
        self._lines: queue.Queue[Sequence[LogLine] | Exception | None] = queue.Queue(_BUFFERED)
        self._stop = threading.Event()
        self._readers: dict[str, SlotReader] = {}
        self._lock = threading.Lock()
        self._member = member
        self._told = ""
        """Why the job waits, as it was said last."""
        self._noted = ""
        """For which ranks it waits, as it was said last."""
        self._states: dict[str, RawLine | None] = {}
        """The newest states of lines that were shown last, by the label of the pod."""
        self._next_states = 0.0
        self._is_cut = False
        """Whether it was said last that the API server does not answer."""
        self._has_restarted = False
        self._problems: set[tuple[str, str]] = set()
        """The problems of pods that were said, by task."""
        self._earlier: set[str] = set()
        """The uids of pods that were gone before."""
        self._changes = feed.changes(key)
        self._pods: Informer[PodRuns | None] = Informer(
            cluster,
            PODS,
            trim=lambda pod: pod_runs.read(pod) if job_objects.is_of_job(pod) else None,
            on_change=self._on_pod,
            namespace=key.namespace,
            label_selector=job_objects.selector(key),
            on_failure=self._on_failure,
            settings=job_feed.SETTINGS,
        )
        self._director = threading.Thread(target=self._direct, name="log-job", daemon=True)

    def lines(self) -> Iterator[LogLine]:
        """Yield the lines until the job has ended."""
        try:
            self._director.start()
            while not self._asked_to_stop.is_set():
                yield from self._newest_states()
                try:
                    lines = self._lines.get(timeout=_LOOK_SECONDS)
                except queue.Empty:
                    continue
                if lines is None:
                    return
                if isinstance(lines, Exception):
                    raise lines
                yield from lines
        finally:
            self._end()

    def _newest_states(self) -> list[LogLine]:
        """Return the newest states of unfinished lines that have changed, once a second, if they are asked for."""
        if self._selection.states != "newest" or time.monotonic() < self._next_states:
            return []
        self._next_states = time.monotonic() + _STATES_SECONDS
        found = {label: reader.newest for label, reader in list(self._readers.items())}
        changed = [(label, line) for label, line in found.items() if line and line != self._states.get(label)]
        self._states = found
        return [LogLine(label, line.text, line.time, is_over=False) for label, line in changed]

    def _end(self) -> None:
        self._stop.set()
        self._changes.close()
        for reader in list(self._readers.values()):
            reader.cancel()
        self._pods.stop(_STOP_SECONDS)

    def _emit(self, lines: Sequence[LogLine] | Exception | None) -> None:
        while not self._stop.is_set():
            try:
                self._lines.put(lines, timeout=_LOOK_SECONDS)
                return
            except queue.Full:
                continue

    def _direct(self) -> None:
        """Follow the state of the job to its end, then let the readers finish."""
        try:
            self._follow_job()
        except (errors.ClusterError, CoordinatorError) as error:
            self._emit(error)

    def _follow_job(self) -> None:
        self._pods.start()
        while not self._pods.wait_synced(_LOOK_SECONDS):
            if self._stop.is_set():
                return
        known = self._known()
        self._earlier = {pod.uid for pod in self._source.listed() if pod.uid not in known}
        item = next(self._changes, None)
        counts = wait_reasons.restart_counts(item) if item is not None else RestartCounts()
        while item is not None and not endings.is_finished(item):
            self._tell(item)
            if note := wait_reasons.describe_restart(counts, item, time.time()):
                self._emit([LogLine("", note)])
                if not self._has_restarted:
                    self._has_restarted = True
                    self._tell_new_files("go with the pod of rank 0")
            counts = wait_reasons.restart_counts(item)
            item = next(self._changes, None)
        if not self._stop.is_set():
            self._finish(item)

    def _tell(self, item: Manifest) -> None:
        """Say why the job waits, also for the last of its pods. Raise NoOutput if the job can never run."""
        if not wait_reasons.is_waiting(item):
            if self._told:
                self._told = ""
                self._emit([LogLine("", "admitted: its pods start")])
            if (note := wait_reasons.for_ranks(item)) and note != self._noted:
                self._noted = note
                self._emit([LogLine("", note)])
            return
        if wait_reasons.never_runs(item) and not self._has_read():
            name = f"{self._key.namespace}/{self._key.name}"
            raise NoOutput(f"job {name} can never run: {wait_reasons.explain(item)}")
        reason = wait_reasons.explain(item)
        if reason != self._told:
            self._told = reason
            self._emit([LogLine("", f"waiting: {self._explain(item)}")])

    def _finish(self, item: Manifest | None) -> None:
        earlier = self._earlier | self._known()
        for pod in self._source.all_pods():  # those, too, that came and went while the watch did not show them
            if not pod.is_gone or pod.uid not in earlier:
                self._take(pod)
        readers = list(self._readers.values())
        for reader in readers:
            reader.finish()
        for reader in readers:
            reader.thread.join()
        if not self._has_read() and not self._stop.is_set():
            reason = wait_reasons.explain(item) if item is not None else "it was deleted"
            raise NoOutput(f"job {self._key.namespace}/{self._key.name} has no output: {reason}")
        self._tell_new_files("stay with the pod of rank 0, and go with it")
        self._emit(None)

    def _tell_new_files(self, what: str) -> None:
        """Report which files are deleted with the pod of rank 0, so that no user searches for these files
        later.
        """
        if (found := self._source.new_files()) is not None:
            self._emit([LogLine("", f"{what}: {found.describe()}")])

    def _known(self) -> set[str]:
        return {uid for reader in list(self._readers.values()) for uid in reader.known}

    def _has_read(self) -> bool:
        return any(reader.has_read for reader in self._readers.values())

    def _on_pod(self, before: PodRuns | None, after: PodRuns | None) -> None:
        if self._is_cut:
            self._is_cut = False
            self._emit([LogLine("", "the API server answers again")])
        if after is not None:
            self._take(after, first=not self._pods.synced)
        elif before is not None:
            self._take(replace(before, is_gone=True))

    def _on_failure(self, error: errors.ClusterError) -> None:
        if not self._pods.synced or isinstance(error, errors.Forbidden | errors.Unauthorized | errors.Misconfigured):
            self._emit(error)
        elif isinstance(error, errors.Unreachable) and not self._is_cut:
            self._is_cut = True
            self._emit([LogLine("", "the API server does not answer; this goes on as soon as it does")])

    def _take(self, pod: PodRuns, *, first: bool = False) -> None:
        if not _is_selected(pod, self._member):
            return
        with self._lock:
            self._tell_problem(pod)
            reader = self._readers.get(pod.label)
            if reader is None:
                if len(self._readers) >= MOST_MEMBERS:
                    self._emit(NoOutput(f"more than {MOST_MEMBERS} pods cannot be followed at once: choose a task"))
                    return
                reader = SlotReader(pod.label, self._source, self._selection, self._emit, self._stop)
                self._readers[pod.label] = reader
                reader.thread.start()
        reader.update(pod, first=first)

    def _tell_problem(self, pod: PodRuns) -> None:
        """Report the reason that keeps a pod from starting. A note that holds for all pods of a task is printed
        once."""
        problem = (pod.task, pod.problem.replace(pod.name, ""))
        if pod.problem and not pod.is_gone and problem not in self._problems:
            self._problems.add(problem)
            self._emit([LogLine("", f"{pod.label} does not start: {pod.problem}")])
