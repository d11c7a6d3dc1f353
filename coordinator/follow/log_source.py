"""Where the output of a job's runs is read: from the embedded API server's own list of runs, else from the pods.

One rule: an answer is of exactly the run that was asked for. The embedded API server names runs. Other API servers
give the present and the previous run of a container only, so the pod is read again once the answer has begun.
"""

import threading
from collections.abc import Iterator

from coordinator.follow import job_objects, log_lines, new_files, pod_runs
from coordinator.follow.log_lines import LineSplitter, RawLine
from coordinator.follow.new_files import NewFiles
from coordinator.follow.pod_runs import PodRuns
from crds import timestamps
from crds.api_resources import PODS
from crds.keys import JobKey
from kube import errors
from kube.api import Cluster, LogOptions, PieceStream


class OtherRun(Exception):
    """The container was started again in the meantime, so the answer may be of another run."""


class NotKept(Exception):
    """The output of a run is not to be had any more. The message says why."""


class LogSource:
    """The output of the runs of one job. Every method may raise any ClusterError."""

    def __init__(self, cluster: Cluster, key: JobKey) -> None:
        self._cluster = cluster
        self._key = key
        self._lists_runs: bool | None = None

    def pods(self) -> list[PodRuns]:
        """Return the pods that exist."""
        return [*map(pod_runs.read, job_objects.pods(self._cluster, self._key))]

    def all_pods(self) -> list[PodRuns]:
        """Return all pods that the job ever had, as far as the server knows their runs, oldest first. A pod that exists
        is described by its own status."""
        present = {pod.uid: pod for pod in self.pods()}
        earlier = [pod for pod in self.listed() if pod.uid not in present]
        return [*earlier, *sorted(present.values(), key=lambda pod: (pod.created, pod.name))]

    def last_runs(self, pod: PodRuns) -> PodRuns:
        """Return a pod that is gone with all its runs."""
        return next((each for each in self.listed() if each.uid == pod.uid), pod)

    def listed(self) -> list[PodRuns]:
        """Return the pods whose runs the server lists, oldest first, including pods that are gone."""
        if self._lists_runs is False:
            return []
        try:
            runs = self._cluster.job_runs(self._key.namespace, self._key.uid)
        except (errors.NotFound, errors.Forbidden):
            # A job that is deleted has no runs. A server that is not the embedded one has no such path.
            self._lists_runs = bool(self._lists_runs)
            return []
        self._lists_runs = True
        return pod_runs.of_list(runs)

    def new_files(self) -> NewFiles | None:
        """Return the files that rank 0 has written beside its code; None if there are no files, or if the server does
        not know.
        """
        return new_files.read(self._cluster, self._key) if self._lists_runs else None

    def open(
        self, pod: PodRuns, container: str, number: int, *, follow: bool, since: str = "", tail: int | None = None
    ) -> "LogAnswer":
        """Return the lines of a run. Raise OtherRun and NotKept."""
        if self._lists_runs is None:
            self.listed()
        # Servers compare whole seconds.
        moment = log_lines.nanoseconds(since)
        whole = timestamps.format_time(moment // 1_000_000_000) if moment else ""
        options = LogOptions(since=whole, tail=tail, timestamps=True, positions=True)
        if self._lists_runs:
            run = f"{pod.uid}.{container}.{number}"
            try:
                found = self._cluster.job_log(self._key.namespace, self._key.uid, run, follow=follow, options=options)
            except errors.NotFound as error:
                raise NotKept(f"the output of run {number} of container {container} was removed") from error
            return LogAnswer(found)
        previous = pod.of(container).is_previous(number)
        if previous is None:
            raise NotKept(f"the output of run {number} of container {container} was not kept")
        options = LogOptions(previous, tail, options.since, timestamps=True, positions=True)
        stream = self._cluster.logs(pod.name, self._key.namespace, container, follow=follow, options=options)
        try:
            self._check_run(pod, container, number, previous)
        except BaseException:
            stream.close()
            raise
        return LogAnswer(stream)

    def _check_run(self, pod: PodRuns, container: str, number: int, previous: bool) -> None:
        try:
            now = pod_runs.read(self._cluster.get(PODS, pod.name, self._key.namespace))
        except errors.NotFound:
            return  # the answer began while the pod existed, and no container of it starts any more
        if now.uid != pod.uid:
            raise NotKept(f"pod {pod.name} was replaced before its output was read to the end")
        if now.of(container).is_previous(number) is not previous:
            raise OtherRun


class LogAnswer(Iterator[list[RawLine]]):
    """The lines of one answer, together as they come. `close` ends the iteration, from any thread."""

    def __init__(self, stream: PieceStream) -> None:
        self._stream = stream
        self._splitter = LineSplitter()
        self._closed = threading.Event()

    def __next__(self) -> list[RawLine]:
        """Return the next lines that have their ends. Raise Unreachable if the connection is lost."""
        while True:
            if lines := self._splitter.split(next(self._stream)):
                return lines

    def rest(self) -> RawLine | None:
        """Return the text after the last end of a line."""
        return self._splitter.rest()

    @property
    def newest(self) -> RawLine | None:
        """The newest state of a line that has several and no end yet."""
        return self._splitter.newest

    @property
    def closed(self) -> bool:
        """Whether `close` was called, so that the output may continue later."""
        return self._closed.is_set()

    def close(self) -> None:
        """End the iteration."""
        self._closed.set()
        self._stream.close()
