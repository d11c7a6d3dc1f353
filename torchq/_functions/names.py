"""The names that a piece of Python takes from its module, and the names that it defines in the module.

One rule: pure, over source text. Nothing is executed.
"""

from __future__ import annotations

import ast
import symtable
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Taken:
    """The names that a statement takes from its module."""

    at_once: frozenset[str]
    """When the statement is executed: its decorators, defaults, base classes, and the body of a class."""
    later: frozenset[str]
    """When its functions are called."""


def taken(source: str, futures: str = "") -> Taken:
    """Return the names that a statement takes from its module, after some imports from __future__."""
    at_once: set[str] = set()
    later: set[str] = set()
    for table, is_later in _tables(symtable.symtable(f"{futures}\n{source}", "<cell>", "exec"), False):
        for symbol in table.get_symbols():
            is_used = symbol.is_referenced() or (is_later and symbol.is_assigned())
            if is_used and (table.get_type() == "module" or symbol.is_global()):
                (later if is_later else at_once).add(symbol.get_name())
    return Taken(frozenset(at_once), frozenset(later - at_once))


def given(statement: ast.stmt) -> frozenset[str]:
    """Return the names that a statement binds in its module."""
    table = symtable.symtable(ast.unparse(statement), "<cell>", "exec")
    return frozenset(
        symbol.get_name() for symbol in table.get_symbols() if symbol.is_assigned() or symbol.is_imported()
    )


def _tables(table: symtable.SymbolTable, is_later: bool) -> Iterator[tuple[symtable.SymbolTable, bool]]:
    yield table, is_later
    for child in table.get_children():
        yield from _tables(child, is_later or child.get_type() == "function")
