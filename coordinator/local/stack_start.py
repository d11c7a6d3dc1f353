"""The start of a stack, part by part: progress, time limits, and the message about a part that does not start.

One rule: a start ends with a running stack, or with one message that names the part and shows the end of its log.
"""

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from coordinator.errors import LocalError
from coordinator.local.stack_state import Files
from coordinator.local.supervisor import Supervisor

START_SECONDS = 60.0
"""The longest time in which one part must answer before the start is given up."""
MOST_DEATHS = 4
"""After this many ends in a row the start of a part has failed. Earlier ends are normal, since processes of a killed
stack may hold a port or a lock a little longer."""
TAIL_LINES = 8
_TAIL_BYTES = 64 * 1024
_LOOK_SECONDS = 0.02

Report = Callable[[str], None]
"""Called with the name of each part when its start begins."""


class StartInterrupted(Exception):
    """A stop signal arrived during the start."""


def ignore_report(_part: str) -> None:
    """Ignore the report."""


def last_lines(output: bytes) -> list[str]:
    """Return the last lines of a log. Equal lines in a row are printed once, such as the lines of a process that starts
    again and again.
    """
    lines = output.decode(errors="replace").splitlines()
    return [line for line, _ in itertools.groupby(lines)][-TAIL_LINES:]


@dataclass(slots=True)
class StackStart:
    """The start of a supervisor's processes: reports progress and fails when a part does not answer in time."""

    files: Files
    supervisor: Supervisor
    stopping: Callable[[], bool]
    report: Report = ignore_report
    _part: str = ""
    """The part that is starting."""
    _lengths: dict[Path, int] = field(default_factory=dict)
    """The length of each log before this start. Lines of earlier starts do not explain a failure."""

    def __post_init__(self) -> None:
        logs = self.files.layout.logs("any").parent
        self._lengths = {path: path.stat().st_size for path in logs.glob("*.log")}

    def wait(self, part: str, process: str, condition: Callable[[], bool], seconds: float = START_SECONDS) -> None:
        """Return when the condition holds. `process` is the name of the process of `part`, for messages.

        Raises StartInterrupted at a stop signal; LocalError if a process ends again and again, or the time is up.
        """
        if part != self._part:
            self.report(part)
            self._part = part
        deadline = time.monotonic() + seconds
        while not condition():
            if self.stopping():
                raise StartInterrupted
            self.supervisor.step()
            for name, (deaths, how) in self.supervisor.troubles().items():
                if deaths >= MOST_DEATHS:
                    raise self.error(f"process {name}", name, f"it {how}, {deaths} times in a row")
            if time.monotonic() > deadline:
                raise self.error(part, process, f"it did not answer within {seconds:.0f} s")
            time.sleep(_LOOK_SECONDS)

    def error(self, part: str, process: str, why: str) -> LocalError:
        """Return the error for a part that did not start."""
        log = self.files.layout.logs(process)
        lines = self._tail(log)
        excerpt = f"; the end of {log}:\n" + "\n".join(f"  {line}" for line in lines) if lines else f"; see {log}"
        return LocalError(f"the cluster did not start: {part}: {why}{excerpt}")

    def _tail(self, log: Path) -> list[str]:
        """Return the last lines that were written since the start began."""
        try:
            with log.open("rb") as file:
                length = file.seek(0, 2)
                file.seek(max(self._lengths.get(log, 0), length - _TAIL_BYTES))
                return last_lines(file.read())
        except OSError:
            return []
