"""The exceptions that Python programs leave in their output.

One rule: pure, over the text of a log or of its end. What other programs print between the lines of a traceback may
hide an exception, but is never part of one that carries its rank.

A traceback is `Traceback (most recent call last):`, indented lines, and the exception, whose message may have several
lines; after them come its notes (PEP 678). A SyntaxError has no first line. Of exceptions that were raised while
another was handled, each is printed after its cause. torch.distributed begins each line with `[rank1]: ` once the
process group is there; torchrun begins each line with `[default1]:` where it copies the output of its processes
(--tee).
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from crds import excerpts

MOST_LINES = 40
"""Lines of one exception's message that are kept."""
LONGEST = 30_000
"""Characters of one exception's message that are kept."""
_NOISE = 50
"""Lines of others between a traceback and its exception after which it is given up."""
_LONGEST_NAME = 300
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_TEE = re.compile(r"\[[A-Za-z_]\w*?(\d+)\]:\s?")
_RANK = re.compile(r"\[rank(\d+)\]:(?: |$)?")
_TRACEBACK = re.compile(r"(?:^|[^A-Za-z])Traceback \(most recent call last\):\s*$")
_PLACE = re.compile(r'^\s+File "[^"]*", line \d+')
_MARGIN = re.compile(r"^ *[|+] (?! *$)")
"""Before the lines of an exception group."""
_DRAWN = re.compile(r"^ *(?:\+[-+]*(?: \d+ -*)?$|[|+] )")
"""The same, and what is drawn between its exceptions."""
_NAME = r"(?:[A-Za-z_]\w*\.)*(?:<locals>\.)?"
_USUAL = re.compile(
    rf"{_NAME}(?:\w*(?:Error|Exception|Interrupt|Exit|Warning|Iteration|Expired|Failure|Group|Timeout)|\w+\.error)"
    r"(?::(?:\s|$)|$)"
)
_PERHAPS = re.compile(rf"{_NAME}[A-Z]\w*[a-z]\w*(?::\s|:?$)")
"""The name of a class, which need not say that it is an exception's."""
_CHAINED = (
    "The above exception was the direct cause of the following exception:",
    "During handling of the above exception, another exception occurred:",
)
_OVER = re.compile(
    r"Exception raised from |frame #\d+|C\+\+ CapturedTraceback|terminate called|Fatal Python error|Exception ignored "
    r"|\[?[WEIF]\d{4} \d\d:\d\d|[-=*+]+(?: ?\d+ ?-+)?$|\S+\.py:\d+: |sys:1: "
)
"""Lines that are no part of an exception's message: C++ stacks, the next log line, rulers, warnings at the exit."""

Source = tuple[int | None, int | None]
"""Whose line it is: its rank, and its local rank; None where the line does not say."""


@dataclass(frozen=True, slots=True)
class Raised:
    """An exception that ended a process, or that it printed and went on."""

    text: str
    """Its name and its message, in one line."""
    source: Source
    line: int
    """The line at which its traceback begins, from 0."""
    chain: tuple[str, ...] = ()
    """The exceptions that led to it, the first one first."""
    alone: str = ""
    """The first line of it, and the lines after that which are indented: all that is surely its own where processes
    that do not name themselves write side by side."""

    @property
    def whole(self) -> str:
        """It and what led to it."""
        return "\n".join((*self.chain, self.text))


def raised(text: str) -> list[Raised]:
    """The exceptions in a text, in the order in which their tracebacks begin."""
    sources: dict[Source, list[tuple[int, str]]] = {}
    for number, line in enumerate(text.split("\n")):
        source, rest = split(line)
        sources.setdefault(source, []).append((number, rest))
    found = (each for source, lines in sources.items() for each in _Reader(source).read(lines))
    return sorted(found, key=lambda each: each.line)


def split(line: str) -> tuple[Source, str]:
    """Whose line it is, and the line without colours, the mark of its process, and what a progress bar wrote over."""
    rest = _COLOUR.sub("", line.rstrip("\r")).rpartition("\r")[2] if "\x1b" in line or "\r" in line else line
    rank = local = None
    tee = _TEE.match(rest)
    if tee and not _RANK.match(rest):
        local, rest = int(tee[1][:9]), rest[tee.end() :]
    found = _RANK.search(rest) if "[rank" in rest else None
    if found and (found.start() == 0 or _TRACEBACK.search(rest)):
        rank, rest = int(found[1][:9]), rest[found.end() :]
    return (rank, local), rest


class _Reader:
    """Reads the lines of one process, or of those that do not name themselves."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._begun: int | None = None
        """Where the traceback began that is being read."""
        self._message: list[str] = []
        """Of the exception that is being read."""
        self._noise = 0
        self._chain: tuple[str, ...] = ()
        self._last: Raised | None = None

    def read(self, lines: Sequence[tuple[int, str]]) -> Iterator[Raised]:
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
        # Of those that do not name themselves the next one may have failed, too.
        return bool(_OVER.match(line) or (self._source == (None, None) and _USUAL.match(line, 0, _LONGEST_NAME)))

    def _look(self, number: int, line: str) -> None:
        """A line that belongs to no message."""
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
        if _is_named(inner):
            self._message = [inner]
        else:
            self._noise += 1
            self._begun = None if self._noise > _NOISE else self._begun

    def _close(self) -> Raised:
        assert self._begun is not None
        own = [self._message[0]]
        for line in self._message[1:]:
            if not line[0].isspace():
                break
            own.append(line)
        text, alone = (_short(map(_without_margin, lines)) for lines in (self._message, own))
        self._last = Raised(text, self._source, self._begun, self._chain, alone)
        self._begun, self._message, self._chain = None, [], ()
        return self._last


def _is_named(line: str) -> bool:
    """Whether a line may be an exception's first: only its beginning is looked at, which bounds the search."""
    return bool(_USUAL.match(line, 0, _LONGEST_NAME) or _PERHAPS.match(line, 0, _LONGEST_NAME))


def _without_margin(line: str) -> str:
    return _DRAWN.sub("", line) if line.lstrip()[:1] in ("|", "+") else line


def _opens(line: str) -> bool:
    return bool(_TRACEBACK.search(line) or _PLACE.match(line)) if "Traceback (" in line or "File " in line else False


def _short(lines: Iterable[str]) -> str:
    return excerpts.excerpt(excerpts.one_line("\n".join(lines)), LONGEST)
