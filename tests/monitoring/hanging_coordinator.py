"""`python -m tests.monitoring.hanging_coordinator FILE`: a coordinator whose control loop hangs while a file exists.

One rule: the hang is in the thread of the control loop, and nothing else of the process is changed.
"""

import sys
import time
from pathlib import Path

from coordinator.cli import main
from coordinator.leader.control_loop import ControlLoop

LOOK_SECONDS = 0.05


def hang_while(file: Path) -> None:
    """Let each round of picks begin only once the file is gone."""
    cycle = ControlLoop.cycle

    def held(loop: ControlLoop) -> int:
        while file.exists():
            time.sleep(LOOK_SECONDS)
        return cycle(loop)

    ControlLoop.cycle = held  # type: ignore[assignment, method-assign]


if __name__ == "__main__":
    hang_while(Path(sys.argv.pop(1)))
    sys.argv[1:1] = ["coordinator"]
    main.main(prog_name="torchq")
