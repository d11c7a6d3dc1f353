"""The traceback with which torchrun ends when its pod is told to stop.

One rule: pure. Lines are held back only until it is clear whether they belong to it, and never beyond `LONGEST` lines.
The log itself keeps all of them.
"""

from collections.abc import Sequence

from coordinator.follow.log_lines import LogLine

BEGIN = "Traceback (most recent call last):"
END = "torch.distributed.elastic.multiprocessing.api.SignalException: "
"""The beginning of its last line. torchrun raises it for a signal, and for nothing else."""
LONGEST = 200


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
