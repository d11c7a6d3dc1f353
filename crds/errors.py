"""What can be wrong with an object of ours.

One rule: a user's mistake is a value with a field in it, never a traceback.

    InvalidObject   the manifest cannot be used; carries every problem found
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One thing wrong: a field's path, as in `spec.torchTaskSpecs.Worker.numTasks`, and what is wrong with it."""

    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


class InvalidObject(ValueError):
    """The object is not valid."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = problems
