"""A module that is made of the cells of a notebook which define a function and the names that it needs.

One rule: pure, over the sources of the cells and the present values. A value that the function needs and that cannot
be sent is refused by name; nothing is pickled.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Mapping, Sequence

from torchq._errors import Refused
from torchq._functions.cells import Binding, BindingKind, Cells, read
from torchq._functions.names import taken

MODULE = "torchq_notebook"
"""The name of the module in the job."""
_OF_IPYTHON = {"display", "get_ipython"}
_OF_MODULES = {"__name__", "__file__", "__doc__", "__package__", "__spec__", "__loader__", "__builtins__"}
_BUILTINS = set(dir(builtins)) - _OF_IPYTHON - _OF_MODULES
_DEEPEST = 50
_ABSENT = object()


def make_module(sources: Sequence[str], function: str, values: Mapping[str, object]) -> str:
    """Return the source of a module that defines a function of a notebook and all that it needs.

    `sources` are the cells in the order in which they were run, `values` are the present values of their names.
    Imports, functions and classes are taken from the cells. Numbers, text, and lists and maps of these are sent with
    their present values.

    Raises Refused, naming everything else that the function needs.
    """
    cells = read(sources)
    found = cells.bindings.get(function)
    if found is None or found.kind is not BindingKind.DEFINITION:
        raise Refused(
            f"no cell defines {function} as a function: a cell with %% in its first line cannot go; define it in a "
            "cell of its own, or in a module that the notebook imports"
        )
    module = _Module(cells, values)
    module.add(function)
    if module.missing:
        raise Refused(
            f"{function} needs what the job does not have: {'; '.join(module.missing)}. Give it as an argument, "
            "make it in the function, or move it to a module that the notebook imports"
        )
    return "\n\n".join([*module.futures, *module.imports, *module.definitions]) + "\n"


class _Module:
    """A module while it is made."""

    def __init__(self, cells: Cells, values: Mapping[str, object]) -> None:
        self._cells = cells
        self._values = values
        self._seen = set(_OF_MODULES)
        self.futures = list(dict.fromkeys(cells.futures))
        self.imports: list[str] = []
        self.definitions: list[str] = []
        """Constants, functions and classes, in an order in which nothing is executed before what it needs."""
        self.missing: list[str] = []
        """What cannot go, with the reason."""

    def add(self, name: str) -> None:
        """Add the definition of a name, after the definitions that it needs at once and before those that it needs
        later.
        """
        waiting = [name]
        for each in waiting:
            waiting.extend(self._add_at_once(each))

    def _add_at_once(self, name: str) -> list[str]:
        """Add the definition of a name and all definitions that it needs at once. Return the names that are needed
        later.
        """
        if name in self._seen:
            return []
        self._seen.add(name)
        binding = self._cells.bindings.get(name)
        if binding is None or binding.kind is BindingKind.OTHER:
            if is_constant(self._values.get(name, _ABSENT)):
                self.definitions.append(f"{name} = {self._values[name]!r}")
            elif binding is not None or name not in _BUILTINS:
                self.missing.append(f"{name}, {self._reason(name, binding)}")
            return []
        if binding.kind is BindingKind.IMPORT:
            self.imports.append(binding.source)
            return []
        needs = taken(binding.source, "\n".join(self.futures))
        later = [each for name in sorted(needs.at_once) for each in self._add_at_once(name)]
        self.definitions.append(binding.source)
        return later + sorted(needs.later)

    def _reason(self, name: str, binding: Binding | None) -> str:
        if binding is not None:
            kind = type(self._values[name]).__name__ if name in self._values else "no constant"
            return f"which cell {binding.cell} makes ({kind})"
        if name in _OF_IPYTHON:
            return "which only a notebook has"
        if self._cells.stars:
            return f"which no cell defines; `{self._cells.stars[-1]}` hides what it imports: import it by name"
        return "which no cell defines"


def is_constant(value: object, depth: int = 0) -> bool:
    """Return whether a value can be written as a literal that means the same."""
    if value is None or type(value) in (bool, int, str, bytes):
        return True
    if type(value) is float:
        return math.isfinite(value)
    if depth > _DEEPEST:
        return False
    if type(value) is dict:
        return all(is_constant(each, depth + 1) for pair in value.items() for each in pair)
    if type(value) in (list, tuple):
        return all(is_constant(each, depth + 1) for each in value)  # type: ignore[attr-defined]
    return type(value) is set and bool(value) and all(is_constant(each, depth + 1) for each in value)
