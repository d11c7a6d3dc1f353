"""The lines of a job as a person reads them: names of files without the folder of the code, and no tracebacks of
a torchrun that is told to stop. The log itself keeps all lines, and the whole paths.

One rule: lines are held back only until it is clear whether they belong to such a traceback, and never beyond `LONGEST`
lines.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from coordinator.code.stores import CODE_PATH, CODE_VOLUME
from coordinator.follow.log_lines import LogLine

_FOLDER = rf"{re.escape(CODE_PATH)}/|/.+/volumes/{re.escape(CODE_VOLUME)}/"
_FILE = re.compile(rf'(?P<before>\s*File ")(?P<folder>{_FOLDER})(?P<after>.+", line \d+.*)')
"""A line of a traceback in a pod of Kubernetes, or of an embedded node."""
BEGIN = "Traceback (most recent call last):"
END = "torch.distributed.elastic.multiprocessing.api.SignalException: "
"""The beginning of its last line. torchrun raises it for a signal, and for nothing else."""
LONGEST = 200


class CodePaths:
    """Shortens the names of the user's files in tracebacks. A note names, once for each folder, the place of the
    files."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def shorten(self, lines: Iterable[LogLine]) -> Iterator[LogLine]:
        """Yield the lines with the user's names of files."""
        for line in lines:
            found = _FILE.fullmatch(line.text) if line.pod else None
            if found is None:
                yield line
                continue
            if found["folder"] not in self._told:
                self._told.add(found["folder"])
                yield LogLine("", f"{line.pod}: files named without a folder are in {found['folder']}")
            yield replace(line, text=found["before"] + found["after"])


class ShutdownTraces:
    """The lines of one run without such tracebacks."""

    def __init__(self) -> None:
        self._held: list[LogLine] = []

    def drop(self, lines: Sequence[LogLine]) -> list[LogLine]:
        """Return the lines that may be shown by now."""
        shown: list[LogLine] = []
        for line in lines:
            if line.text == BEGIN:
                shown += self.rest()
                self._held = [line]
            elif not self._held:
                shown.append(line)
            elif line.text.startswith(END):
                self._held = []
            else:
                self._held.append(line)
                if not line.text.startswith(" ") or len(self._held) > LONGEST:
                    shown += self.rest()
        return shown

    def rest(self) -> list[LogLine]:
        """Return the lines that are held back, since no more come."""
        held, self._held = self._held, []
        return held
