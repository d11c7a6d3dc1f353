"""Lines on standard output that `torchq job reports` and `torchq.Job.reports` find again.

One rule: a line is written at once and whole, so that no other process or thread writes within it. Output that is
closed or broken is no reason to end a training.
"""

from __future__ import annotations

import contextlib
import sys

REPORT = "torchq-report: "
RESULT = "torchq-result: "
RESULT_PART = "torchq-result-part: "


def write(mark: str, text: str) -> None:
    """Write a line with its mark on standard output."""
    output = sys.stdout
    if output is None:
        return
    # RuntimeError: a signal has come while this thread writes, and its handler reports.
    with contextlib.suppress(OSError, ValueError, RuntimeError):
        output.flush()
        output.write(f"{mark}{text}\n")
        output.flush()
