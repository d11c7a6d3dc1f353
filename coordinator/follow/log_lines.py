"""The lines of containers' output: selected, cut to a bearable length, and readable whatever was printed.

A carriage return begins a new state of a line, as progress bars do many times in a second: each state ends with
`STATE`, the last one with `LINE`.

One rule: no state of a line takes more memory than `LONGEST`, whatever its length.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from coordinator.follow import kept_results

LONGEST = 64 * 1024
"""The most bytes that are shown of one line."""
LINE, STATE = b"\n", b"\r"
"""The ends of a line and of a state of a line that is not the last one."""
States = Literal["last", "newest", "all"]
"""What is read of the states of a line: the last one, once the line has its end; also, once a second, the newest one of
a line that has no end yet; or all, as they were printed."""
_PREFIX = re.compile(rb"(?:@(\d{1,18}) )?(?:(\d{4}-\d\d-\d\dT\S{8,30}) )?")
_LONGEST_PREFIX = 64
_OF_KUBELET = re.compile(
    rb"unable to retrieve container logs for |failed to (?:try resolving symlinks in path|watch file|create fsnotify) "
)
"""The errors of a kubelet that its API sends as if they were output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSelection:
    """Which output of a job to read."""

    task: str = ""
    """The task type, in any case; empty for the one of rank 0."""
    index: int = 0
    container: str = ""
    """The name of the container; empty for the main one."""
    all: bool = False
    """Whether to read all pods; `task` and `index` have no effect then."""
    tail: int | None = None
    """The number of last lines of each pod to begin with, of its last run; None for all lines."""
    previous: bool = False
    """Whether to read the run before the last restart."""
    run: int | None = None
    """The number of the run to read, from 1; None for all runs, or, with `follow`, for the present one and the later
    ones."""
    follow: bool = False
    """Whether to go on until the job ends, through restarts and with new pods."""
    states: States = "last"


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of output, or one state of a line, without its end."""

    pod: str
    """The task type in lower case and the index of the pod, as in `master-0`. Empty for a note of torchq itself."""
    text: str
    """The text. U+FFFD stands for zero bytes and for what is not UTF-8; a mark ends a line that was cut."""
    time: str | None = None
    """When the line was printed (RFC 3339)."""
    is_over: bool = True
    """Whether the line is over. Another state of it follows else."""


@dataclass(frozen=True, slots=True)
class RawLine:
    """One state of a line as a server sends it, split into its parts. Most lines have one state."""

    content: bytes
    """The first bytes of the state, at most `LONGEST`."""
    length: int
    """The number of bytes that the state has in the output, without its end."""
    position: int | None = None
    """The number of bytes before the state in the output of its run, if the server says so."""
    time: str | None = None
    mark: bytes = LINE
    """The end of the state. The last one of an answer may have none."""

    @property
    def is_of_kubelet(self) -> bool:
        """Whether the kubelet has written the line in place of output that it cannot read. Output has its time."""
        return self.time is None and self.position is None and _OF_KUBELET.match(self.content) is not None

    @property
    def end(self) -> int:
        """The position after the state and its end."""
        return (self.position or 0) + self.length + len(self.mark)

    @property
    def text(self) -> str:
        """The line for people."""
        text = self.content.replace(b"\0", b"\xff").decode("utf-8", "replace")
        cut = self.length > len(self.content)
        return f"{text} [torchq: cut, the line has {self.length} bytes]" if cut else text

    def of_pod(self, label: str) -> LogLine:
        """Return the line of a pod, or the note that the kubelet cannot read its output."""
        if self.is_of_kubelet:
            return LogLine("", f"{label}: {self.text}")
        return LogLine(label, self.text, self.time, is_over=self.mark != STATE)


class LineSplitter:
    """Puts lines together from pieces that end anywhere, without keeping more than the first bytes of each state."""

    def __init__(self) -> None:
        self._state = bytearray()
        self._length = 0
        self._before: RawLine | None = None
        """The state before the present one, in the same line."""

    def split(self, piece: bytes) -> list[RawLine]:
        """Return the states of lines that end in a piece."""
        *whole, rest = piece.split(LINE)
        found: list[RawLine] = []
        for part in whole:
            if STATE in part or self._length or self._before or len(part) > LONGEST:
                found += self._split_states(part)
                found.append(self._take(LINE))
            else:
                found.append(_parse(part, len(part), LINE))
        return found + self._split_states(rest)

    def _split_states(self, part: bytes) -> list[RawLine]:
        *states, rest = part.split(STATE)
        found = []
        for state in states:
            self._append(state)
            found.append(self._take(STATE))
        self._append(rest)
        return found

    @property
    def newest(self) -> RawLine | None:
        """The newest state, with or without its end, of a line that has several and no end yet."""
        return self._peek(b"") if self._before and self._length else self._before

    def rest(self) -> RawLine | None:
        """Return the state that has no end yet, if there is such a state."""
        return self._take(b"") if self._length else None

    def _append(self, part: bytes) -> None:
        room = LONGEST + _LONGEST_PREFIX - len(self._state)
        if room > 0:
            self._state += part[:room]
        self._length += len(part)

    def _take(self, mark: bytes) -> RawLine:
        state = self._peek(mark)
        self._state.clear()
        self._length = 0
        self._before = state if mark == STATE else None
        return state

    def _peek(self, mark: bytes) -> RawLine:
        content, before = bytes(self._state), self._before
        if before is None:
            return _parse(content, self._length, mark)
        position = None if before.position is None else before.end
        return RawLine(content[:LONGEST], self._length, position, before.time, mark)


def _parse(line: bytes, length: int, mark: bytes) -> RawLine:
    found = _PREFIX.match(line)
    prefix = found.end() if found else 0
    position, time = (found[1], found[2]) if found else (None, None)
    return RawLine(
        line[prefix : prefix + LONGEST],
        length - prefix,
        None if position is None else int(position),
        None if time is None else time.decode(),
        mark,
    )


class LineStates:
    """Puts the states of each line of one run together: a line is its last state that has a text."""

    def __init__(self, states: States) -> None:
        self._states = states
        self._last: LogLine | None = None
        """The last state with a text of a line that is not over."""

    def collapse(self, lines: Iterable[LogLine]) -> list[LogLine]:
        """Return the lines that are over, or all states if they are asked for. The parts of a large result, which the
        log keeps for programs, are in none of the lines."""
        return list(lines) if self._states == "all" else [whole for line in lines if (whole := self._add(line))]

    def _add(self, line: LogLine) -> LogLine | None:
        if not line.pod:
            return line
        if self._last is not None and not line.text.strip():
            line = replace(self._last, is_over=line.is_over)
        self._last = None if line.is_over else line
        return line if line.is_over and kept_results.MARK not in line.text else None

    def rest(self) -> list[LogLine]:
        """Return the line that has no end, at the end of the output."""
        last, self._last = self._last, None
        return [replace(last, is_over=True)] if last is not None else []


class Overlap:
    """The delivered part of the output of one run, so that the next answer repeats and misses nothing.

    Output of a server that gives positions is followed by these positions. Other servers give each line the time at
    which it was printed, exact to a nanosecond: the lines with the latest time are counted.
    """

    def __init__(self, *, whole: bool = True) -> None:
        """Begin with the first line of the first run, or, unless `whole`, with the first line that comes."""
        self._end: int | None = 0 if whole else None
        """The position up to which lines were delivered; None before the first one."""
        self._time = ""
        self._count = 0
        """The number of delivered lines with that time."""
        self._repeated = 0
        """The number of lines with that time in the present answer; -1 once the answer has passed them."""

    @property
    def since(self) -> str:
        """The time from which to request the remaining output; empty for the whole output."""
        return self._time

    def begin_answer(self) -> None:
        """Begin to read another answer."""
        self._repeated = 0 if self._count else -1

    def admit(self, line: RawLine) -> tuple[bool, int]:
        """Return whether a line is new, and the number of bytes that were removed before it."""
        if line.position is not None:
            before, self._end = self._end, max(line.end, self._end or 0)
            self._note(line.time)
            gap = line.position - (line.position if before is None else before)
            return gap >= 0, max(0, gap)
        if self._repeated >= 0 and line.time is not None and self._is_repeated(line.time):
            return False, 0
        self._note(line.time)
        return True, 0

    def _is_repeated(self, time: str) -> bool:
        now, last = nanoseconds(time), nanoseconds(self._time)
        if now == last and self._repeated < self._count:
            self._repeated += 1
            return True
        if now < last:
            return True
        self._repeated = -1
        return False

    def _note(self, time: str | None) -> None:
        if time is not None:
            self._count = self._count + 1 if time == self._time else 1
            self._time = time


def nanoseconds(time: str) -> int:
    """Return a time of RFC 3339 in nanoseconds since the epoch; 0 for any other text."""
    found = re.fullmatch(r"(.{19})(?:\.(\d{1,9})\d*)?(Z|[+-]\d\d:\d\d)", time)
    if found is None:
        return 0
    try:
        seconds = int(datetime.fromisoformat(found[1] + found[3]).timestamp())
    except ValueError:
        return 0
    return seconds * 1_000_000_000 + int((found[2] or "").ljust(9, "0"))
