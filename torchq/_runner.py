"""Runs a function in a job: `python -m torchq._runner MODULE NAME`, with the arguments in the variable TORCHQ_CALL.

One rule: a failure in the user's code shows the user's traceback; a failure in torchq is one sentence. Both errors end
the process with exit code 1, and concern no other rank.
"""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torchq._errors import Refused, TorchqError
from torchq._functions import call as calls
from torchq._functions import failures, notebook
from torchq._functions.call import FunctionCall
from torchq._training import results, surroundings
from torchq._training.importing import Importing

INTERRUPTED = 130


def main(arguments: Sequence[str]) -> int:
    """Run a function and give its result. Return the exit code."""
    try:
        module, name = arguments
        call = calls.parse(os.environ.pop(calls.VARIABLE))
    except (ValueError, KeyError):
        print("torchq._runner runs a function that `submit` has sent; it is not for people", file=sys.stderr)
        return 2
    with _search_path(call):
        return _run(module, name, call)


def _run(module: str, name: str, call: FunctionCall) -> int:
    try:
        value = _load(module, name, call)(*call.arguments, **call.keywords)
        if value is not None and surroundings.is_rank_zero(os.environ):
            results.give(value, f"what {name} returns")
        return 0
    except TorchqError as error:
        print(f"torchq: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        print(failures.describe(error), end="", file=sys.stderr)
    return 1


@contextmanager
def _search_path(call: FunctionCall) -> Iterator[None]:
    """Let Python find modules where the caller's Python found them. A notebook's module has its own folder."""
    sys.path[:0] = [str(Path(folder).absolute()) for folder in call.search_path]
    if not call.source:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="torchq-") as folder:
        Path(folder, f"{notebook.MODULE}.py").write_text(call.source, encoding="utf-8")
        sys.path.insert(0, folder)
        yield


def _load(module: str, name: str, call: FunctionCall) -> Callable[..., Any]:
    """Return the function. Raises Refused, and whatever the user's module raises while it is imported."""
    try:
        with Importing(module):
            found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise Refused(
            f"the module {module} is not in the folder that was sent: .gitignore, .torchqignore or `exclude` may leave "
            f"out {call.file}"
        ) from None
    file = getattr(found, "__file__", None) or "Python itself"
    if call.file and os.path.realpath(call.file) != os.path.realpath(file):
        raise Refused(f"Python finds the module {module} in {file} and not in {call.file}: rename {call.file}")
    function = getattr(found, name, None)
    if not callable(function):
        raise Refused(f"the module {module} has no function {name} when the job imports it")
    unwrapped: Callable[..., Any] = getattr(function, "function", function)
    return unwrapped


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
