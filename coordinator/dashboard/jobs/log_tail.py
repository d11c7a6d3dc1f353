"""The last lines of the log of a job, read as long as somebody looks.

One rule: bounded. One reader for each visitor, job and pod, a few hundred lines each; a reader ends some seconds after
the last look, and too many readers are an answer in words.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from itertools import count

from coordinator import terminal
from coordinator.errors import CoordinatorError
from coordinator.follow import logs
from coordinator.follow.job_feed import JobChanges
from coordinator.follow.log_lines import LogLine, LogSelection
from crds import excerpts
from crds.errors import InvalidObject
from crds.keys import JobKey
from kube import errors
from kube.api import Cluster, Manifest

LINES = 500
LONGEST_LINE = 2_000
"""The most characters of a line."""
MOST_CHARACTERS = 256 * 1024
"""The most characters of all lines together."""
LOOKED_SECONDS = 10.0
"""How long after the last look the log is read on."""
AGAIN_SECONDS = 10.0
"""How long after an error the log is tried again."""
MOST_READERS, MOST_OF_VISITOR = 64, 16
"""The most logs that are read at once, for all visitors and for one."""
NOT_SHOWN = "the log is not shown, as too many logs are open on this dashboard; torchq job logs shows it"
FAILURES = (errors.ClusterError, CoordinatorError, InvalidObject, KeyError, TypeError, ValueError)


@dataclass(frozen=True, slots=True)
class ShownLine:
    """A line, as a page shows it."""

    number: int
    """Counts the lines of this reader."""
    pod: str
    """Empty for a note of torchq."""
    time: str
    text: str


@dataclass(frozen=True, slots=True)
class Tail:
    """The last lines."""

    lines: tuple[ShownLine, ...] = ()
    problem: str = ""
    """Why nothing more comes; empty while the log is followed, or at its end."""
    is_over: bool = False


class ToldJob(JobChanges):
    """The states of one job as a page reads them. It stands for a feed of jobs, so a log costs no watch of its own."""

    def __init__(self, key: JobKey) -> None:
        super().__init__()
        self._key = key

    def tell(self, item: Manifest | None) -> None:
        """Note the newest state; None: the job is deleted."""
        self._inbox.put(self._key, item)

    def changes(self, key: JobKey) -> "ToldJob":  # noqa: ARG002
        """Return the states of the job (`coordinator.follow.logs.JobStates`)."""
        return self


Follow = Callable[[Cluster, ToldJob, JobKey, LogSelection, threading.Event], Iterator[LogLine]]


class TailReader:
    """Reads the log of one job on a thread."""

    def __init__(
        self,
        cluster: Cluster,
        key: JobKey,
        selection: LogSelection,
        follow: Follow,
        clock: Callable[[], float],
    ) -> None:
        self._cluster, self._key, self._selection = cluster, key, selection
        self._follow, self._clock = follow, clock
        self._job = ToldJob(key)
        self._lines = deque[ShownLine](maxlen=LINES)
        self._characters = 0
        self._numbers = count(1)
        self._problem = ""
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._looked = clock()
        self.ended_at: float | None = None
        self._thread = threading.Thread(target=self._run, name="dashboard-log", daemon=True)
        self._thread.start()

    def look(self, item: Manifest | None) -> Tail:
        """Return the last lines. `item` is the job now; None: it is deleted."""
        self._looked = self._clock()
        self._job.tell(item)
        with self._lock:
            return Tail(tuple(self._lines), self._problem, self.ended_at is not None)

    @property
    def is_unwatched(self) -> bool:
        """Whether nobody has looked for a while."""
        return self._clock() - self._looked > LOOKED_SECONDS

    @property
    def is_due_again(self) -> bool:
        """Whether the log has ended with an error, long enough ago to be tried again."""
        return bool(self._problem) and self.ended_at is not None and self._clock() - self.ended_at > AGAIN_SECONDS

    def stop(self) -> None:
        """End the reader."""
        self._stop.set()
        self._job.close()

    def _run(self) -> None:
        problem = ""
        try:
            for line in self._follow(self._cluster, self._job, self._key, self._selection, self._stop):
                self._add(line)
                if self._stop.is_set():
                    break
        except FAILURES as error:
            problem = str(error)
        with self._lock:
            self._problem, self.ended_at = problem, self._clock()

    def _add(self, line: LogLine) -> None:
        text = terminal.plain(line.text[: LONGEST_LINE * 2])
        if len(text) > LONGEST_LINE:
            text = f"{text[:LONGEST_LINE]} {excerpts.ELLIPSIS}"
        with self._lock:
            if len(self._lines) == LINES:
                self._characters -= len(self._lines[0].text)
            self._lines.append(ShownLine(next(self._numbers), line.pod, line.time or "", text))
            self._characters += len(text)
            while self._characters > MOST_CHARACTERS:
                self._characters -= len(self._lines.popleft().text)


class LogReaders:
    """The readers of a dashboard."""

    def __init__(self, follow: Follow = logs.follow, clock: Callable[[], float] = time.monotonic) -> None:
        self._follow, self._clock = follow, clock
        self._readers: dict[tuple[Hashable, JobKey, LogSelection], TailReader] = {}
        self._lock = threading.Lock()
        self._keeper: threading.Thread | None = None
        self._changed = threading.Condition(self._lock)

    def look(
        self, visitor: Hashable, cluster: Cluster, key: JobKey, selection: LogSelection, item: Manifest | None
    ) -> Tail:
        """Return the last lines of the log of a job for a visitor, by whose rights `cluster` reads. The log is read on
        for some seconds from now."""
        name = visitor, key, selection
        with self._lock:
            self.end_unwatched()
            reader = self._readers.get(name)
            if reader is not None and reader.is_due_again:
                reader.stop()
                reader = None
            if reader is None:
                self._readers.pop(name, None)
                if item is None:
                    return Tail(is_over=True)
                own = sum(each[0] == visitor for each in self._readers)
                if len(self._readers) >= MOST_READERS or own >= MOST_OF_VISITOR:
                    return Tail(problem=NOT_SHOWN)
                reader = self._readers[name] = TailReader(cluster, key, selection, self._follow, self._clock)
                self._keep()
        return reader.look(item)

    def end_unwatched(self) -> None:
        """End the readers at whose lines nobody looks any more. The caller holds the lock."""
        for name in [name for name, reader in self._readers.items() if reader.is_unwatched]:
            self._readers.pop(name).stop()

    def _keep(self) -> None:
        """Let a thread look after the readers as long as there are some."""
        if self._keeper is None:
            self._keeper = threading.Thread(target=self._run, name="dashboard-logs", daemon=True)
            self._keeper.start()

    def _run(self) -> None:
        with self._lock:
            while self._readers:
                self._changed.wait(1.0)
                self.end_unwatched()
            self._keeper = None
