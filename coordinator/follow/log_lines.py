"""The lines of containers' output: selected, cut to a bearable length, and readable whatever was printed.

One rule: pure, and no line takes more memory than `LONGEST`, whatever its length.
"""

import re
from dataclasses import dataclass
from datetime import datetime

LONGEST = 64 * 1024
"""The most bytes that are shown of one line."""
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


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of output, without its end."""

    pod: str
    """The task type in lower case and the index of the pod, as in `master-0`. Empty for a note of torchq itself."""
    text: str
    """The text. U+FFFD stands for zero bytes and for what is not UTF-8; a mark ends a line that was cut."""
    time: str | None = None
    """When the line was printed (RFC 3339)."""


@dataclass(frozen=True, slots=True)
class RawLine:
    """One line as a server sends it, split into its parts."""

    content: bytes
    """The first bytes of the line, at most `LONGEST`."""
    length: int
    """The number of bytes that the line has in the output, without its end."""
    position: int | None = None
    """The number of bytes before the line in the output of its run, if the server says so."""
    time: str | None = None
    ended: bool = True
    """Whether the line has its end. The last line of an answer may lack it."""

    @property
    def is_of_kubelet(self) -> bool:
        """Whether the kubelet has written the line in place of output that it cannot read. Output has its time."""
        return self.time is None and self.position is None and _OF_KUBELET.match(self.content) is not None

    @property
    def end(self) -> int:
        """The position after the line and its end."""
        return (self.position or 0) + self.length + self.ended

    @property
    def text(self) -> str:
        """The line for people."""
        text = self.content.replace(b"\0", b"\xff").decode("utf-8", "replace").removesuffix("\r")
        cut = self.length > len(self.content)
        return f"{text} [torchq: cut, the line has {self.length} bytes]" if cut else text


class LineSplitter:
    """Puts lines together from pieces that end anywhere, without keeping more than the first bytes of each line."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._length = 0

    def split(self, piece: bytes) -> list[RawLine]:
        """Return the lines that end in a piece."""
        *whole, rest = piece.split(b"\n")
        lines = [self._end(part) for part in whole]
        self._append(rest)
        return lines

    def _end(self, part: bytes) -> RawLine:
        if self._length or len(part) > LONGEST:
            self._append(part)
            return self._take(ended=True)
        return _parse(part, len(part), ended=True)

    def rest(self) -> RawLine | None:
        """Return the line that has no end yet, if there is one."""
        return self._take(ended=False) if self._length else None

    def _append(self, part: bytes) -> None:
        room = LONGEST + _LONGEST_PREFIX - len(self._line)
        if room > 0:
            self._line += part[:room]
        self._length += len(part)

    def _take(self, *, ended: bool) -> RawLine:
        line, length = bytes(self._line), self._length
        self._line.clear()
        self._length = 0
        return _parse(line, length, ended=ended)


def _parse(line: bytes, length: int, *, ended: bool) -> RawLine:
    found = _PREFIX.match(line)
    prefix = found.end() if found else 0
    position, time = (found[1], found[2]) if found else (None, None)
    return RawLine(
        line[prefix : prefix + LONGEST],
        length - prefix,
        None if position is None else int(position),
        None if time is None else time.decode(),
        ended,
    )


class Overlap:
    """What was delivered of the output of one run, so that the next answer repeats and misses nothing.

    A server that gives positions is followed by them. Others give each line the time at which it was printed, exact to
    a nanosecond: the lines of the last time are counted.
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
        """The time from which to ask for the rest; empty for the whole output."""
        return self._time

    def begin_run(self) -> None:
        """Begin with another run of the container. Its lines are later than those of the run before."""
        self._end = 0

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
