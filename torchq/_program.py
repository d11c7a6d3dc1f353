"""The program `torchq`: where it is, and how it is started as `torchq rpc`.

One rule: the program runs with its own Python and its own packages. The variables that change the search for modules
are not passed on, so that folders of the caller's project are not imported by the program.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torchq._errors import Disconnected, NoProgram
from torchq._version import PROGRAM_PACKAGE

NAME = "torchq"
HELLO_SECONDS = 60.0
"""How long a program may take to start: ten times what a busy machine needs."""
_LAST_BYTES = 2_000
_OWN_VARIABLES = ("PYTHONPATH", "PYTHONHOME", "PYTHONWARNINGS")
"""Variables that are meant for the caller's Python."""
_SELECTING = ("KUBECONFIG", "PATH")


@dataclass(frozen=True)
class Options:
    """The options of a client on the command line of its program."""

    kubeconfig: str = ""
    context: str = ""
    namespace: str = ""
    coordinator: str = ""

    @property
    def arguments(self) -> list[str]:
        """The options of the command line."""
        given = {name: value for name, value in vars(self).items() if value}
        return [word for name, value in given.items() for word in (f"--{name}", os.fspath(value))]


def find(environ: Mapping[str, str]) -> str:
    """Return the path of the program: on PATH, else beside this Python. Raises NoProgram."""
    beside = Path(sys.executable or "python").parent / NAME
    path = shutil.which(NAME, path=environ.get("PATH", "")) or shutil.which(str(beside))
    if path is None:
        raise NoProgram(
            f"there is no program `{NAME}` on PATH, nor beside {sys.executable}: "
            f"install it with `pip install {PROGRAM_PACKAGE}`, in this environment or in one of its own"
        )
    return path


def command(path: str, options: Options) -> list[str]:
    """Return the command line of `torchq rpc`."""
    return [path, *options.arguments, "rpc"]


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for the program."""
    kept = {name: value for name, value in environ.items() if name not in _OWN_VARIABLES}
    return {**kept, "PYTHONSAFEPATH": "1"}


def selection(environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the variables that select program and cluster. A client whose variables change starts another program."""
    return tuple(
        sorted((name, value) for name, value in environ.items() if name in _SELECTING or name.startswith("TORCHQ_"))
    )


def cannot_start(path: str, error: OSError) -> NoProgram:
    """Return the error about a program that does not start."""
    return NoProgram(f"the program {path} cannot be started: {error.strerror}; reinstall {PROGRAM_PACKAGE}")


def no_hello(path: str, last_words: str) -> NoProgram:
    """Return the error about a program that ends, or says nothing, before its first line."""
    return NoProgram(
        f"the program {path} does not answer `{NAME} rpc`: put the `{NAME}` of `pip install {PROGRAM_PACKAGE}`, "
        f"in the version of this package, first on PATH{_quote(last_words)}"
    )


def ended(path: str, code: int | None, last_words: str) -> Disconnected:
    """Return the error about a program that ended in the middle of a call."""
    how = f"with exit code {code}" if code is not None and code >= 0 else f"by {_signal(-(code or 0))}"
    return Disconnected(
        f"{path} rpc ended {how} in the middle of the call, so it is not known whether the call took effect; "
        f"look before you repeat it, the next call starts the program again{_quote(last_words)}"
    )


def last_words(pieces: Sequence[bytes]) -> str:
    """Return the end of the standard error of the program."""
    return b"".join(pieces)[-_LAST_BYTES:].decode(errors="replace").strip()


def _quote(text: str) -> str:
    return f". Its last words:\n{text}" if text else ""


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "a signal"
