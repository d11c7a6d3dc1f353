"""`python -m tests.monitoring.spoiled_coordinator HANG FAIL`: a coordinator whose control loop hangs, or fails, while a
file exists.

One rule: that happens in the thread of the control loop, and nothing else of the process is changed.
"""

import sys
import time
from pathlib import Path

from coordinator.cli import main
from coordinator.leader.control_loop import ControlLoop
from queues.errors import StoreUnreachable

LOOK_SECONDS = 0.05


def spoil(hang: Path, fail: Path) -> None:
    """Let each round of picks begin only once a file is gone, and let it fail while another one is there."""
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
