"""The definitions in the cells of a notebook: imports, functions and classes by name.

One rule: pure, over the sources of the cells in the order in which they were run. The last definition of a name
is used.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum

from torchq._functions.names import given


class BindingKind(Enum):
    """The kind of statement that binds a name."""

    IMPORT = "import"
    DEFINITION = "definition"
    OTHER = "other"


@dataclass(frozen=True)
class Binding:
    """The last statement of the cells that binds a name."""

    kind: BindingKind
    source: str
    place: tuple[int, int]
    """The number of the cell, as In[3] has it, and the line."""

    @property
    def cell(self) -> int:
        return self.place[0]


@dataclass
class Cells:
    """The definitions of all cells."""

    bindings: dict[str, Binding] = field(default_factory=dict)
    futures: list[str] = field(default_factory=list)
    """The imports from __future__."""
    stars: list[str] = field(default_factory=list)
    """The imports of all names of a module, which hide what they bind."""


def read(sources: Sequence[str]) -> Cells:
    """Return the definitions in the cells of a notebook. The first source has number 0. Cells that are no Python are
    passed over: they have failed.
    """
    cells = Cells()
    for number, source in enumerate(sources):
        try:
            module = ast.parse(source)
        except (SyntaxError, ValueError):
            continue
        for statement in module.body:
            _add(cells, source, statement, (number, statement.lineno))
    return cells


def _add(cells: Cells, source: str, statement: ast.stmt, place: tuple[int, int]) -> None:
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        _add_import(cells, statement, place)
    elif isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        cells.bindings[statement.name] = Binding(BindingKind.DEFINITION, _lines(source, statement), place)
    else:
        for name in given(statement):
            cells.bindings[name] = Binding(BindingKind.OTHER, "", place)


def _add_import(cells: Cells, statement: ast.Import | ast.ImportFrom, place: tuple[int, int]) -> None:
    for alias, text in _imports(statement):
        if isinstance(statement, ast.ImportFrom) and statement.module == "__future__":
            cells.futures.append(text)
        elif alias.name == "*":
            cells.stars.append(text)
        else:
            name = alias.asname or alias.name.partition(".")[0]
            before = cells.bindings.get(name)
            # `import a.b` and `import a.c` both bind `a`, and both are needed.
            kept = before.source.split("\n") if before is not None and _binds_package(before.source, text) else []
            cells.bindings[name] = Binding(BindingKind.IMPORT, "\n".join(dict.fromkeys([*kept, text])), place)


def _binds_package(*sources: str) -> bool:
    return all(source.startswith("import ") and " as " not in source for source in sources)


def _imports(statement: ast.Import | ast.ImportFrom) -> Iterator[tuple[ast.alias, str]]:
    for alias in statement.names:
        if isinstance(statement, ast.Import):
            yield alias, ast.unparse(ast.Import([alias]))
        else:
            yield alias, ast.unparse(ast.ImportFrom(statement.module, [alias], statement.level))


def _lines(source: str, statement: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> str:
    """Return the lines of a definition, with its decorators and comments."""
    first = min([statement.lineno, *(each.lineno for each in statement.decorator_list)])
    return "\n".join(source.split("\n")[first - 1 : statement.end_lineno])
