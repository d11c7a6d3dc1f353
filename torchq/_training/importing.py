"""Keeps a job from submitting itself again while it imports the user's code.

One rule: in a process of a job, nothing is submitted while the module of its function is imported. Otherwise each job
would submit another job, without end.
"""

from __future__ import annotations

from torchq._errors import Refused

SUBMITTING = ("run", "submit")
"""The calls that make a job."""
_modules: list[str] = []


class Importing:
    """A time in which a job imports the module of its function."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __enter__(self) -> None:
        _modules.append(self._module)

    def __exit__(self, *_: object) -> None:
        _modules.pop()


def refuse_while_importing() -> None:
    """Raise Refused while a job imports the module of its function, in whichever thread."""
    if _modules:
        raise submits_again(f"the job imports {_modules[-1]}")


def submits_again(cause: str) -> Refused:
    """Return the error for a module that submits a job when it is imported."""
    return Refused(f'{cause}, which submits a job again: put what submits under `if __name__ == "__main__":`')
