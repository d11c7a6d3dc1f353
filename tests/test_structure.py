"""Rules for the source code that no linter checks: lengths, imports at the top of a module, and package files."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("crds", "cluster", "gang", "queues", "reconcilers", "coordinator", "bench")
FILES = {
    str(path.relative_to(ROOT)): path.read_text() for package in PACKAGES for path in (ROOT / package).rglob("*.py")
}
MODULES = {name: ast.parse(text, name) for name, text in FILES.items() if not name.endswith("__init__.py")}
LONGEST_MODULE = 400
LONGEST_FUNCTION = 50

Function = ast.FunctionDef | ast.AsyncFunctionDef
Import = ast.Import | ast.ImportFrom


def functions() -> Iterator[tuple[str, Function]]:
    """Yield every function and method of the packages, with its place in the source."""
    for name, module in MODULES.items():
        for node in ast.walk(module):
            if isinstance(node, Function):
                yield f"{name}:{node.lineno} {node.name}", node


def lines(node: Function) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def test_all_packages_are_checked() -> None:
    assert {name.partition("/")[0] for name in MODULES} == set(PACKAGES)


def test_package_files_are_empty() -> None:
    assert [name for name, text in FILES.items() if name not in MODULES and text] == []


def test_every_module_docstring_has_one_rule() -> None:
    assert [name for name, module in MODULES.items() if "One rule:" not in (ast.get_docstring(module) or "")] == []


def test_no_module_is_too_long() -> None:
    lengths = {name: len(FILES[name].splitlines()) for name in MODULES}
    assert {name: length for name, length in lengths.items() if length > LONGEST_MODULE} == {}


def test_no_function_is_too_long() -> None:
    assert {name: lines(node) for name, node in functions() if lines(node) > LONGEST_FUNCTION} == {}


def test_no_function_contains_an_import() -> None:
    assert [name for name, node in functions() if any(isinstance(each, Import) for each in ast.walk(node))] == []


def test_no_module_imports_only_for_type_checkers() -> None:
    assert [name for name in MODULES if "TYPE_CHECKING" in FILES[name]] == []
