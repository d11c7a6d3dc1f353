"""Where the module of a function is in the folder that is sent, and which functions cannot go.

One rule: a function that cannot be found again by module and name is refused, with a solution.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from torchq._errors import Refused

ENVIRONMENTS = {"site-packages", "dist-packages"}


@dataclass(frozen=True)
class Place:
    """A module within a folder."""

    module: str
    file: str
    """Relative to the folder."""
    search_path: tuple[str, ...]
    """The folders in which Python finds modules here, as far as they are in the folder; relative to it."""


def check_kind(function: Callable[..., Any]) -> None:
    """Raise Refused for a function that cannot be sent by its name, whatever its module."""
    name = function.__qualname__
    if "<lambda>" in name:
        raise Refused("a lambda has no name by which the job finds it: write `def NAME(...)` in a module")
    if is_of_class(function):
        raise Refused(f"{name} belongs to a class: write a function of the module that makes the object and calls it")
    if "<locals>" in name:
        raise Refused(f"{name} is made within another function, so the job cannot find it: move it out to its module")
    if inspect.iscoroutinefunction(function):
        raise Refused(f"{name} is an async function: write one that calls asyncio.run({name}(...))")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise Refused(f"{name} yields values: return one value, and give others by torchq.report while it runs")


def is_of_class(function: Callable[..., Any]) -> bool:
    """Return whether a function is made in the body of a class."""
    return "." in function.__qualname__.rpartition("<locals>.")[2]


def find(function: Callable[..., Any], folder: str, search_path: Sequence[str]) -> Place:
    """Return where the module of a function is in a folder. `search_path` is the search path of Python (sys.path).
    Raises Refused.
    """
    module = sys.modules.get(function.__module__)
    file = _file(function, module)
    name = function.__module__ if function.__module__ != "__main__" else _name_of_script(module, file)
    root = os.path.realpath(folder)
    path = os.path.relpath(file, root)
    if path.startswith(os.pardir + os.sep) or os.path.isabs(path):
        raise Refused(
            f"{function.__qualname__} is in {file}, and the folder that goes is {root}: start in your project's "
            "folder, or name it by `folder`"
        )
    if ENVIRONMENTS & set(path.split(os.sep)):
        raise Refused(
            f"{function.__qualname__} is in {path}, an installed package, which does not go: write a function of "
            "your own in this folder that calls it"
        )
    found = _import_folder(path, name)
    if found is None:
        raise Refused(f"{path} is not where Python looks for the module {name}: import it under the name of its file")
    folders = list(dict.fromkeys(_within(root, search_path)))
    return Place(name, path, tuple(folders if found in folders else [found, *folders]))


def _file(function: Callable[..., Any], module: ModuleType | None) -> str:
    file: str | None = getattr(module, "__file__", None)
    if file is None:
        raise Refused(f"{function.__qualname__} is in no file: write it to a file of this folder, as train.py")
    if not file.endswith(".py"):
        raise Refused(f"{function.__qualname__} is in {file}: the job can only import a file that ends with .py")
    return os.path.realpath(file)


def _name_of_script(module: ModuleType | None, file: str) -> str:
    """Return the name by which the job imports a module that runs here as a script, or by `python -m NAME`."""
    spec = getattr(module, "__spec__", None)
    if spec is not None and spec.name != "__main__":
        return str(spec.name)
    name = os.path.basename(file)[: -len(".py")]
    if "." in name:
        raise Refused(f"{os.path.basename(file)} cannot be imported, because its name has a dot: rename it")
    return name


def _import_folder(path: str, module: str) -> str | None:
    """Return the folder in which an import of a module finds a file; None if the import finds another file, or none."""
    parts = module.split(".")
    for tail in (os.path.join(*parts) + ".py", os.path.join(*parts, "__init__.py")):
        if path == tail:
            return os.curdir
        if path.endswith(os.sep + tail):
            return path[: -len(tail) - 1]
    return None


def _within(root: str, search_path: Sequence[str]) -> Iterator[str]:
    for entry in search_path:
        path = os.path.relpath(os.path.realpath(entry or os.curdir), root)
        outside = path == os.pardir or path.startswith(os.pardir + os.sep) or os.path.isabs(path)
        if not outside and not ENVIRONMENTS & set(path.split(os.sep)) and os.path.isdir(os.path.join(root, path)):
            yield path
