"""`python -m tests.monitoring.spoiled_coordinator HANG FAIL`: a coordinator whose control loop hangs, or fails, while a
file exists.

One rule: only the thread of the control loop hangs or fails. The rest of the process is unchanged.
"""

import sys
import time
from pathlib import Path

from coordinator.cli import main
from coordinator.leader.control_loop import ControlLoop
from queues.errors import StoreUnreachable

LOOK_SECONDS = 0.05


def spoil(hang: Path, fail: Path) -> None:
    """Make each round of picks wait until the file `hang` is gone, and fail while the file `fail` exists."""
    cycle = ControlLoop.cycle

    def spoiled(loop: ControlLoop) -> int:
        while hang.exists():
            time.sleep(LOOK_SECONDS)
        if fail.exists():
            raise StoreUnreachable(f"{fail} exists")
        return cycle(loop)

    ControlLoop.cycle = spoiled  # type: ignore[assignment, method-assign]


if __name__ == "__main__":
    spoil(*(Path(sys.argv.pop(1)) for _ in range(2)))
    sys.argv[1:1] = ["coordinator"]
    main.main(prog_name="torchq")
