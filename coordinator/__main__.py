"""The `torchq` command from its first moment: Ctrl-C ends it quietly, even while the other modules of the command are
imported, and all that is printed passes the door to the terminal, tracebacks too.

One rule: nothing of torchq is imported here before Ctrl-C ends the command quietly.
"""

import importlib
import signal


def main() -> None:
    """Run the command."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:  # a caller that ignores SIGINT, such as nohup, keeps that
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    importlib.import_module("coordinator.terminal").put_doors()
    command = importlib.import_module("coordinator.cli.main")
    signal.signal(signal.SIGINT, handler)
    command.main()


if __name__ == "__main__":
    main()
