"""The program of each rank in `bench restarts --real`. It prints when it begins, and when it ends by itself.

One rule: the standard library alone, because it runs as text on the command line of any image with python3. A changed
file of the pod's annotation asks it to end with exit code 1. ON_TERM says what it does on SIGTERM: `ends` or `ignores`.
"""

import os
import signal
import time


def say(word: str) -> None:
    """Print a word with the time and the size of the world."""
    print(word, f"{time.time():.3f}", os.environ.get("WORLD_SIZE", "1"), flush=True)


def asked() -> str:
    """Return what the annotation says; empty without one."""
    try:
        with open(os.path.join(os.environ["TORCHQ_VOLUME_ASK"], "exit")) as file:
            return file.read()
    except OSError:
        return ""


def main() -> None:
    """Run until asked to end."""
    ends = os.environ["ON_TERM"] == "ends"
    signal.signal(signal.SIGTERM, (lambda *_: os._exit(0)) if ends else signal.SIG_IGN)
    before = asked()
    say("boot")
    while asked() in ("", before):
        time.sleep(0.05)
    say("exit")
    os._exit(1)


if __name__ == "__main__":
    main()
