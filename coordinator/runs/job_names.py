"""The names of jobs for which the user gives no name: from the script or the folder, with a random end."""

import posixpath
import re
from collections.abc import Callable, Sequence

LONGEST = 40
"""The longest name of a job."""
ENDING = 5
FUNCTION_RUNNER = "torchq._runner"
"""The module that runs a function; its arguments are the function's module and name."""
LETTERS = "bcdfghjklmnpqrstvwxz2456789"
"""The characters of random ends: without vowels, so that no words come out, and without those that look alike."""


def generated(command: Sequence[str], folder: str, choose: Callable[[str], str]) -> str:
    """Return a name such as train-x7k2p; `choose` picks one of several characters."""
    ending = "".join(choose(LETTERS) for _ in range(ENDING))
    return f"{base(command, folder)[: LONGEST - ENDING - 1].rstrip('-')}-{ending}"


def stand_in(name: str, choose: Callable[[str], str]) -> str:
    """Return a random name as long as another one, for the validation of a job whose name is still taken."""
    return "x" + "".join(choose(LETTERS) for _ in range(max(len(name), 8) - 1))


def base(command: Sequence[str], folder: str) -> str:
    """Return the name of the script or the module that a command runs, else the name of the folder, as a name of a
    job."""
    candidates = (_script(command), posixpath.basename(folder.rstrip("/")), "run")
    return next(name for candidate in candidates if (name := _as_name(candidate)))


def _script(command: Sequence[str]) -> str:
    for index, word in enumerate(command):
        if word.endswith(".py"):
            return posixpath.basename(word).removesuffix(".py")
        if word == "-m" and index + 1 < len(command):
            module = command[index + 1]
            if module == FUNCTION_RUNNER:
                return "".join(command[index + 3 : index + 4]).rpartition(".")[2]
            if module not in ("torch.distributed.run", "accelerate.commands.launch"):
                return module.rpartition(".")[2]
    return ""


def _as_name(text: str) -> str:
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    return name if name[:1].isalpha() else f"run-{name}" if name else ""
