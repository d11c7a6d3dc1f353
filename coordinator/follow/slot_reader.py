"""Reads all output of one member of a job (such as master-0), through restarts and replaced pods.

One rule: a run is read to its end before the next one begins, and a run is at its end only when an answer that was
asked for after the end of the run has come to its own end.
"""

import random
import threading
from collections.abc import Callable, Sequence

from coordinator.follow.log_lines import LineStates, LogLine, LogSelection, Overlap, RawLine
from coordinator.follow.log_source import LogAnswer, LogSource, NotKept, OtherRun
from coordinator.follow.pod_runs import PodRuns
from coordinator.follow.readable_lines import CodePaths, ShutdownTraces
from kube import errors, retries

LOOK_SECONDS = 1.0
"""The longest wait for news of a pod whose output has ended although its container runs."""
_BACKOFF_SECONDS = (0.2, 5.0)
_ATTEMPTS = 8
"""How often output is asked for that nobody writes any more, before the answer is given up: its node may be lost."""
_FATAL = (errors.Forbidden, errors.Unauthorized, errors.Misconfigured)


class SlotReader:
    """The thread that reads one member of a job. The feed of pods calls `update`, and `finish` at the job's end."""

    def __init__(
        self,
        label: str,
        source: LogSource,
        selection: LogSelection,
        emit: Callable[[Sequence[LogLine] | Exception], None],
        stop: threading.Event,
    ) -> None:
        self.label = label
        self._source = source
        self._selection = selection
        self._emit = emit
        self._stop = stop
        self._changed = threading.Condition()
        self._pods: dict[str, PodRuns] = {}
        """The pods by uid, in the order in which they were seen."""
        self._begin: dict[tuple[str, str], int] = {}
        """The next run to read, by pod and container."""
        self._known: set[str] = set()
        self._finished = False
        self._lines: LogAnswer | None = None
        self._delivered = False
        """Whether the present answer has brought a new line."""
        self._states = LineStates(selection.states)
        self.newest: RawLine | None = None
        """The newest state of a line that has no end yet."""
        self._traces = ShutdownTraces()
        self._paths = CodePaths()
        self.has_read = False
        """Whether any output was there to read."""
        self.thread = threading.Thread(target=self._run, name=f"log-{label}", daemon=True)

    def update(self, pod: PodRuns, *, first: bool = False) -> None:
        """Note the state of a pod. Of a pod that was there `first`, only the present run is read."""
        with self._changed:
            before = self._pods.get(pod.uid)
            if before is not None and before.is_gone and not pod.is_gone:
                return
            if before is None and pod.uid in self._known:
                return  # it was read to its end
            self._known.add(pod.uid)
            self._pods[pod.uid] = pod
            for name, runs in pod.containers.items() if first and before is None else ():
                self._begin[pod.uid, name] = max(0, runs.last)
            self._changed.notify_all()

    @property
    def known(self) -> frozenset[str]:
        """The uids of the pods that were seen."""
        return frozenset(self._known)

    def finish(self) -> None:
        """Read the remaining output, then end: the job has ended, so no pod of it is made any more."""
        with self._changed:
            self._finished = True
            self._changed.notify_all()
            self._close_unless_terminating()

    def cancel(self) -> None:
        """End at once."""
        with self._changed:
            if self._lines is not None:
                self._lines.close()
            self._changed.notify_all()

    def _close_unless_terminating(self) -> None:
        # A pod that is being deleted prints its last output; another pod may run for ever (cleanPodPolicy None).
        pod = next(iter(self._pods.values()), None)
        if self._lines is not None and pod is not None and not pod.terminating and not pod.is_gone:
            self._lines.close()

    def _run(self) -> None:
        try:
            while not self._stop.is_set() and self._read_next_pod():
                pass
        except errors.ClusterError as error:
            self._emit(error)

    def _read_next_pod(self) -> bool:
        """Read the oldest pod that is known to its end. Return whether another pod may follow."""
        with self._changed:
            self._changed.wait_for(lambda: self._pods or self._finished or self._stop.is_set())
            if self._stop.is_set() or not self._pods:
                return False
            uid = next(iter(self._pods))
        complete = False
        while not self._stop.is_set():
            pod = self._pods[uid]
            selected = pod.selected(self._selection.container)
            begun = {each: self._begin.get((uid, each), 0) for each in selected}
            container = next((each for each, number in begun.items() if number <= pod.of(each).last), "")
            if container:
                self._read_run(uid, container)
            elif pod.is_gone and not complete:
                complete = True  # runs may have come and gone unseen
                self.update(self._source.last_runs(pod))
            elif not self._wait_for_more(uid, pod):
                break
        with self._changed:
            del self._pods[uid]
        return True

    def _wait_for_more(self, uid: str, pod: PodRuns) -> bool:
        """Wait for a change of a pod whose runs are all read; return False once there is nothing more to come."""
        with self._changed:
            over = pod.is_finished or self._finished or len(self._pods) > 1
            if over and self._pods[uid] is pod:
                return False
            self._changed.wait_for(
                lambda: self._pods[uid] is not pod or self._finished or len(self._pods) > 1 or self._stop.is_set()
            )
            return True

    def _read_run(self, uid: str, container: str) -> None:
        number = self._begin.get((uid, container), 0)
        tail = self._selection.tail if not self.has_read else None
        overlap, failures = Overlap(whole=tail is None), 0
        while not self._stop.is_set():
            pod = self._pods[uid]
            over = pod.is_over(container, number) or (self._finished and not pod.terminating)
            try:
                if self._read_answer(pod, container, number, overlap, follow=not over, tail=tail) and over:
                    break
                failures = 0
            except (NotKept, errors.NotFound, errors.Invalid) as error:
                if over:
                    self._note_loss(error, pod, overlap)
                    break
            except OtherRun:
                pass
            except _FATAL:
                raise
            except errors.ClusterError as error:
                failures = 1 if self._delivered else failures + 1
                if over and failures >= _ATTEMPTS and not isinstance(error, errors.Unreachable):
                    self._note_loss(error, pod, overlap)
                    break
            self._wait_for_change(uid, pod, failures)
        self._show(self._states.rest())
        self._emit([*self._paths.shorten(self._traces.rest())])
        self._begin[uid, container] = number + 1

    def _read_answer(
        self, pod: PodRuns, container: str, number: int, overlap: Overlap, *, follow: bool, tail: int | None
    ) -> bool:
        """Deliver the new lines of one answer; return whether it came to its end."""
        again = bool(overlap.since)
        lines = self._source.open(
            pod, container, number, follow=follow, since=overlap.since, tail=None if again else tail
        )
        with self._changed:
            self._lines = lines
            if self._stop.is_set():
                lines.close()
            if self._finished and follow:
                self._close_unless_terminating()
        self.has_read, self._delivered = True, False
        # A run that was read from a pod that is being removed had most likely ended.
        is_last = not follow and not (overlap.since and (pod.terminating or pod.is_gone))
        try:
            overlap.begin_answer()
            for several in lines:
                self._deliver(several, overlap, is_last=is_last)
                self.newest = lines.newest
            rest = None if follow or lines.closed else lines.rest()
            if rest is not None:
                self._deliver([rest], overlap, is_last=is_last)
            return not lines.closed
        finally:
            self._lines = self.newest = None
            lines.close()

    def _deliver(self, lines: Sequence[RawLine], overlap: Overlap, *, is_last: bool) -> None:
        """Deliver the lines that are new, and say where output is missing. The error of a kubelet is no output; the
        error is reported if the run is not read again.
        """
        found: list[LogLine] = []
        for line in lines:
            if line.is_of_kubelet:
                found += [line.of_pod(self.label)] if is_last else []
                continue
            is_new, removed = overlap.admit(line)
            if removed:
                found.append(LogLine(self.label, f"[torchq: {removed} bytes of output were removed here]"))
            if is_new:
                found.append(line.of_pod(self.label))
        if found:
            self._delivered = True
            self._show(self._states.collapse(found))

    def _show(self, lines: Sequence[LogLine]) -> None:
        if self._selection.states != "all":
            lines = [*self._paths.shorten(self._traces.drop(lines))]
        if lines:
            self._emit(lines)

    def _note_loss(self, error: Exception, pod: PodRuns, overlap: Overlap) -> None:
        """Report the output that could not be read. The output of a pod that is gone, and was read before, had most
        likely ended.
        """
        if pod.is_gone and overlap.since:
            return
        self._emit([LogLine("", f"{self.label}: {error}")])

    def _wait_for_change(self, uid: str, pod: PodRuns, failures: int) -> None:
        seconds = LOOK_SECONDS
        if failures:
            seconds = retries.backoff(*_BACKOFF_SECONDS, attempt=failures, jitter=random.random())
        with self._changed:
            self._changed.wait_for(
                lambda: self._stop.is_set() or (not failures and (self._pods[uid] is not pod or self._finished)),
                seconds,
            )
