"""The exceptions that Python programs leave in their output.

One rule: pure, over the text of a log or of its end. Lines that other programs print within a traceback may hide an
exception, but never become part of an exception that carries its rank.

A traceback is `Traceback (most recent call last):`, indented lines, and the exception, whose message may have several
lines. The notes of the exception (PEP 678) follow. A SyntaxError has no first line. An exception that was raised while
another exception was handled is printed after the first exception. torch.distributed begins each line with `[rank1]: `
once the process group exists; torchrun begins each line with `[default1]:` where it copies the output of its processes
(--tee).
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from crds import excerpts

MOST_LINES = 40
"""The number of lines kept of one exception's message."""
LONGEST = 30_000
"""The number of characters kept of one exception's message."""
_NOISE = 50
"""The number of other lines after a traceback at which the search for its exception ends."""
_LONGEST_NAME = 300
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_TEE = re.compile(r"\[[A-Za-z_]\w*?(\d+)\]:\s?")
_RANK = re.compile(r"\[rank(\d+)\]:(?: |$)?")
_TRACEBACK = re.compile(r"(?:^|[^A-Za-z])Traceback \(most recent call last\):\s*$")
_PLACE = re.compile(r'^\s+File "[^"]*", line \d+')
_MARGIN = re.compile(r"^ *[|+] (?! *$)")
"""The margin of the lines of an exception group."""
_DRAWN = re.compile(r"^ *(?:\+[-+]*(?: \d+ -*)?$|[|+] )")
"""The same margin, and the lines that are drawn between the exceptions of a group."""
_NAME = r"(?:[A-Za-z_]\w*\.)*(?:<locals>\.)?"
_USUAL = re.compile(
    rf"{_NAME}(?:\w*(?:Error|Exception|Interrupt|Exit|Warning|Iteration|Expired|Failure|Group|Timeout)|\w+\.error)"
    r"(?::(?:\s|$)|$)"
)
_PERHAPS = re.compile(rf"{_NAME}[A-Z]\w*[a-z]\w*(?::\s|:?$)")
"""The name of a class that may or may not be an exception."""
_CHAINED = (
    "The above exception was the direct cause of the following exception:",
    "During handling of the above exception, another exception occurred:",
)
_OVER = re.compile(
    r"Exception raised from |frame #\d+|C\+\+ CapturedTraceback|terminate called|Fatal Python error|Exception ignored "
    r"|\[?[WEIF]\d{4} \d\d:\d\d|[-=*+]+(?: ?\d+ ?-+)?$|\S+\.py:\d+: |sys:1: "
)
"""Lines that end an exception's message: C++ stacks, the next log line, rulers, warnings at the exit."""

Source = tuple[int | None, int | None]
"""The process that printed a line: its rank and its local rank, each None where the line does not have it."""


@dataclass(frozen=True, slots=True)
class RaisedException:
    """An exception that ended a process, or that a process printed before it continued."""

    text: str
    """The name and the message of the exception, in one line."""
    source: Source
    line: int
    """The number of the line, from 0, at which its traceback begins."""
    chain: tuple[str, ...] = ()
    """The exceptions that led to it, oldest first."""
    alone: str = ""
    """The first line of the exception and the indented lines after it. Where several processes print without their
    rank, only these lines certainly belong to the exception."""

    @property
    def whole(self) -> str:
        """The exception and the exceptions that led to it."""
        return "\n".join((*self.chain, self.text))


def find_exceptions(text: str) -> list[RaisedException]:
    """Return the exceptions in a text, in the order in which their tracebacks begin."""
    sources: dict[Source, list[tuple[int, str]]] = {}
    for number, line in enumerate(text.split("\n")):
        source, rest = parse_source(line)
        sources.setdefault(source, []).append((number, rest))
    exceptions = (exception for source, lines in sources.items() for exception in _Reader(source).read(lines))
    return sorted(exceptions, key=lambda exception: exception.line)


def parse_source(line: str) -> tuple[Source, str]:
    """Return the process that printed a line, and the line without colours, without the process's prefix, and without
    text that a progress bar overwrote."""
    rest = _COLOUR.sub("", line.rstrip("\r")).rpartition("\r")[2] if "\x1b" in line or "\r" in line else line
    rank = local = None
    tee = _TEE.match(rest)
    if tee and not _RANK.match(rest):
        local, rest = int(tee[1][:9]), rest[tee.end() :]
    rank_match = _RANK.search(rest) if "[rank" in rest else None
    if rank_match and (rank_match.start() == 0 or _TRACEBACK.search(rest)):
        rank, rest = int(rank_match[1][:9]), rest[rank_match.end() :]
    return (rank, local), rest


class _Reader:
    """Reads the lines of one process, or of all processes that print no rank."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._begun: int | None = None
        """The line at which the current traceback began; None outside of a traceback."""
        self._message: list[str] = []
        """The lines of the current exception's message; empty outside of a message."""
        self._noise = 0
        self._chain: tuple[str, ...] = ()
        self._last: RaisedException | None = None

    def read(self, lines: Sequence[tuple[int, str]]) -> Iterator[RaisedException]:
        if any(line[:1].isspace() for _, line in lines[:2]):  # the beginning of the traceback may be cut off
            self._begun, lines = lines[0][0], lines if lines[0][1][:1].isspace() else lines[1:]
        for number, line in lines:
            if self._message and not self._is_over(line):
                self._message.append(line)
                continue
            if self._message:
                yield self._close()
            self._look(number, line)
        if self._message:
            yield self._close()

    def _is_over(self, line: str) -> bool:
        if not line.strip() or len(self._message) >= MOST_LINES or _opens(line):
            return True
        # Among processes without a rank, another process may have failed next.
        return bool(_OVER.match(line) or (self._source == (None, None) and _USUAL.match(line, 0, _LONGEST_NAME)))

    def _look(self, number: int, line: str) -> None:
        """Read a line that belongs to no message."""
        if _opens(line) and (self._begun is None or _TRACEBACK.search(line)):
            self._begun, self._noise = number, 0
        elif self._begun is not None:
            self._read_traceback(line)
        elif self._last is not None and line.strip() in _CHAINED:
            self._chain = (*self._last.chain, self._last.text)

    def _read_traceback(self, line: str) -> None:
        inner = _MARGIN.sub("", line, count=1)
        if not inner.strip() or inner[0].isspace():
            return
        # Only the beginning of a line is searched for the name of an exception, which bounds the time.
        if _USUAL.match(inner, 0, _LONGEST_NAME) or _PERHAPS.match(inner, 0, _LONGEST_NAME):
            self._message = [inner]
        else:
            self._noise += 1
            self._begun = None if self._noise > _NOISE else self._begun

    def _close(self) -> RaisedException:
        assert self._begun is not None
        own_lines = [self._message[0]]
        for line in self._message[1:]:
            if not line[0].isspace():
                break
            own_lines.append(line)
        text, first_lines = (_short(map(_without_margin, lines)) for lines in (self._message, own_lines))
        self._last = RaisedException(text, self._source, self._begun, self._chain, first_lines)
        self._begun, self._message, self._chain = None, [], ()
        return self._last


def _without_margin(line: str) -> str:
    return _DRAWN.sub("", line) if line.lstrip()[:1] in ("|", "+") else line


def _opens(line: str) -> bool:
    return bool(_TRACEBACK.search(line) or _PLACE.match(line)) if "Traceback (" in line or "File " in line else False


def _short(lines: Iterable[str]) -> str:
    return excerpts.excerpt(excerpts.one_line("\n".join(lines)), LONGEST)
