"""Keeps a job from submitting itself again.

One rule: a job imports the module of its function. A module that submits a job while it is imported would submit
another job in that job, without end; so this submission is refused before the first job.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from torchq._training.importing import submits_again


def refuse_unguarded(function: Callable[..., Any]) -> None:
    """Raise Refused if the module of a function calls this while it is imported, outside of `if __name__ ==
    "__main__":`."""
    module = sys.modules.get(function.__module__)
    for frame in _frames():
        if module is not None and frame.f_code.co_name == "<module>" and frame.f_globals is vars(module):
            statement = _statement(frame)
            if statement is not None and not is_guard(statement):
                file = frame.f_code.co_filename
                raise submits_again(f"the job imports {file} up to line {frame.f_lineno}")


def is_guard(statement: ast.stmt) -> bool:
    """Return whether a statement is `if __name__ == "__main__":`."""
    if not isinstance(statement, ast.If):
        return False
    parts = list(ast.walk(statement.test))
    return any(isinstance(part, ast.Name) and part.id == "__name__" for part in parts) and any(
        isinstance(part, ast.Constant) and part.value == "__main__" for part in parts
    )


def _frames() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        yield frame
        frame = frame.f_back


def _statement(frame: FrameType) -> ast.stmt | None:
    """Return the statement of a module that a frame is at; None if its source cannot be read."""
    try:
        with open(frame.f_code.co_filename, "rb") as file:
            module = ast.parse(file.read())
    except (OSError, SyntaxError, ValueError):
        return None
    for statement in module.body:
        if statement.lineno <= frame.f_lineno <= (statement.end_lineno or statement.lineno):
            return statement
    return None
