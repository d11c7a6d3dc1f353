"""The `torchq` command from its first moment: Ctrl-C ends it quietly, even while the other modules of the command are
imported.

One rule: nothing of torchq is imported here before Ctrl-C ends the command quietly.
"""

import importlib
import signal


def main() -> None:
    """Run the command."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:  # a caller that ignores SIGINT, such as nohup, keeps that
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    command = importlib.import_module("coordinator.cli.main")
    signal.signal(signal.SIGINT, handler)
    command.main()


if __name__ == "__main__":
    main()
