"""Errors in the objects that users write.

One rule: a user's mistake is reported as a field and a message, never as a traceback.

    InvalidObject   the manifest cannot be used; the error carries every problem
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """A problem of one field: its path, as in `spec.torchTaskSpecs.Worker.numTasks`, and a message."""

    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


class InvalidObject(ValueError):
    """The object is not valid."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = problems
