"""The names of the user's files in tracebacks, without the folder in which a pod has unpacked them.

One rule: pure. Only the lines of a traceback that name a file are changed. A note says once for each folder where the
files are. The log itself keeps the whole paths.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from coordinator.code.stores import CODE_PATH, CODE_VOLUME
from coordinator.follow.log_lines import LogLine

_FOLDER = rf"{re.escape(CODE_PATH)}/|/.+/volumes/{re.escape(CODE_VOLUME)}/"
_FILE = re.compile(rf'(?P<before>\s*File ")(?P<folder>{_FOLDER})(?P<after>.+", line \d+.*)')
"""A line of a traceback in a pod of Kubernetes, or of an embedded node."""


class CodePaths:
    """The folders that were told already."""

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
