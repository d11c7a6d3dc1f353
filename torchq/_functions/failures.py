"""The traceback of a function that fails in a job.

One rule: a traceback shows the user's code, without the frames of this package and of Python's import.
"""

from __future__ import annotations

import importlib
import os
import traceback
from collections.abc import Iterator
from pathlib import Path

PACKAGE = str(Path(__file__).parents[1]) + os.sep
_IMPORT = ("<frozen importlib", "<frozen runpy", importlib.__file__)


def describe(error: BaseException) -> str:
    """Return the traceback of an exception and of the exceptions that led to it."""
    found = traceback.TracebackException.from_exception(error)
    for each in _all(found):
        each.stack[:] = [frame for frame in each.stack if not frame.filename.startswith((PACKAGE, *_IMPORT))]
    return "".join(found.format())


def _all(error: traceback.TracebackException) -> Iterator[traceback.TracebackException]:
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        parts = [each.__cause__, each.__context__, *(getattr(each, "exceptions", None) or ())]
        waiting.extend(part for part in parts if part is not None)
