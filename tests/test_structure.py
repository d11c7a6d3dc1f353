"""Rules of the code that no linter knows: sizes, names, docstrings of packages, references in documents."""

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import click
import pytest

from coordinator.cli.main import main

ROOT = Path(__file__).parents[1]
PACKAGES = (
    "torchq",
    "crds",
    "kube",
    "embedded",
    "gang",
    "queues",
    "history",
    "reconcilers",
    "coordinator",
    "bench",
    "deploy",
)
INSTALLED = PACKAGES[1:-2]
"""The packages whose words have to mean one thing; `torchq` has the words of its users."""
DOORS = ("torchq/__init__.py",)
"""Packages that users import: their `__init__.py` has the public names."""
LONGEST_MODULE = 400
LONGEST_CLASS = 220
WHOLE_CLASSES = {"FairShare", "PickCycle", "PickerState", "QueueState"}
"""Classes that stay whole. Each has one invariant over all of its fields, and a cut in two would only hide this
invariant.
"""
LONGEST_FUNCTION = 50
MOST_MODULES = 20
MOST_MUTABLE_FIELDS = 15
MOST_SHARED_NAMES = 8
MOST_NAMESAKES = 40
"""The most modules that have the name of another one: `errors` apart, which each package may have."""
LONGEST_SUMMARY = 45
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
REFERENCE = re.compile(r"`([\w/]+\.py)(?::(\w+(?:\.\w+)*))?`")

RULE = "One rule:"
SENTENCE = re.compile(r"[A-Z`0-9]\S*(\s+\S+){2,}[.:]", re.DOTALL)
"""The beginning of a text: a sentence of at least three words, or one that a list completes."""

Function = ast.FunctionDef | ast.AsyncFunctionDef
Import = ast.Import | ast.ImportFrom


@cache
def files() -> dict[str, str]:
    """Return the text of each file of the code. It is read by the tests, and not by each process that collects them."""
    return {
        str(path.relative_to(ROOT)): path.read_text() for package in PACKAGES for path in (ROOT / package).rglob("*.py")
    }


@cache
def modules() -> dict[str, ast.Module]:
    """Return each module of the code but for packages, parsed."""
    return {name: ast.parse(text, name) for name, text in files().items() if not name.endswith("__init__.py")}


def functions() -> Iterator[tuple[str, Function]]:
    """Yield every function and method of the code with its file and line."""
    for name, module in modules().items():
        for node in ast.walk(module):
            if isinstance(node, Function):
                yield f"{name}:{node.lineno} {node.name}", node


def classes() -> Iterator[tuple[str, ast.ClassDef]]:
    """Yield every class of the code with its file and line."""
    for name, module in modules().items():
        for node in ast.walk(module):
            if isinstance(node, ast.ClassDef):
                yield f"{name}:{node.lineno} {node.name}", node


def lines(node: Function | ast.ClassDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def mutable_fields(node: ast.ClassDef) -> set[str]:
    """Return the attributes of `self` that a class assigns after `__init__`."""
    return {
        target.attr
        for function in node.body
        if isinstance(function, Function) and function.name not in {"__init__", "__post_init__"}
        for target in ast.walk(function)
        if isinstance(target, ast.Attribute) and isinstance(target.ctx, ast.Store)
        if isinstance(target.value, ast.Name) and target.value.id == "self"
    }


def commands(group: click.Group, path: tuple[str, ...] = ("torchq",)) -> Iterator[tuple[str, click.Command]]:
    """Yield every command of the command line that help lists, with its name."""
    context = click.Context(group, info_name=path[-1])
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if not command.hidden:
            yield " ".join((*path, name)), command
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


def test_every_package_has_modules() -> None:
    assert {name.partition("/")[0] for name in modules()} == set(PACKAGES)


def test_every_package_says_what_belongs_in_it_and_nothing_else() -> None:
    packages = {name: ast.parse(text) for name, text in files().items() if name not in modules() and name not in DOORS}
    assert [name for name, module in packages.items() if not ast.get_docstring(module) or len(module.body) > 1] == []


def test_every_module_opens_with_a_sentence_that_says_what_it_is_for() -> None:
    openings = {name: (ast.get_docstring(module) or "").partition("\n\n")[0] for name, module in modules().items()}
    poor = [name for name, text in openings.items() if not SENTENCE.match(text) or text.startswith(RULE)]
    assert poor == []


def test_no_folder_has_too_many_modules() -> None:
    paths = [path for package in (*PACKAGES, "tests") for path in (ROOT / package).rglob("*.py")]
    sizes = Counter(str(path.parent.relative_to(ROOT)) for path in paths if path.name != "__init__.py")
    assert {folder: size for folder, size in sizes.items() if size > MOST_MODULES} == {}


def test_no_module_is_too_long() -> None:
    lengths = {name: len(files()[name].splitlines()) for name in modules()}
    assert {name: length for name, length in lengths.items() if length > LONGEST_MODULE} == {}


def test_no_class_is_too_long() -> None:
    sizes = {name: lines(node) for name, node in classes() if node.name not in WHOLE_CLASSES}
    assert {name: size for name, size in sizes.items() if size > LONGEST_CLASS} == {}


def test_no_class_has_too_many_mutable_fields() -> None:
    assert {name for name, node in classes() if len(mutable_fields(node)) > MOST_MUTABLE_FIELDS} == set()


def test_no_function_is_too_long() -> None:
    assert {name: lines(node) for name, node in functions() if lines(node) > LONGEST_FUNCTION} == {}


def test_few_public_classes_share_a_name() -> None:
    homes = defaultdict(set)
    for name, module in modules().items():
        for node in module.body:
            if name.startswith(INSTALLED) and isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].add(name)
    shared = {name: sorted(places) for name, places in homes.items() if len(places) > 1}
    assert len(shared) <= MOST_SHARED_NAMES, shared


def test_few_modules_have_the_name_of_another() -> None:
    homes = defaultdict(set)
    for name in modules():
        # The tables of the history have the names of what they keep.
        if name.partition("/")[0] in {"torchq", *INSTALLED} - {"history"} and not name.endswith("/errors.py"):
            homes[name.rpartition("/")[2]].add(name)
    shared = {name: sorted(places) for name, places in homes.items() if len(places) > 1}
    assert sum(map(len, shared.values())) <= MOST_NAMESAKES, shared


def test_no_import_hides_in_a_function() -> None:
    assert [name for name, node in functions() if any(isinstance(part, Import) for part in ast.walk(node))] == []


def test_no_import_is_for_type_checkers_alone() -> None:
    assert [name for name in modules() if "TYPE_CHECKING" in files()[name]] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_everything_that_a_document_names_exists(document: Path) -> None:
    missing = []
    for path, name in REFERENCE.findall(document.read_text()):
        if "/" not in path:
            continue
        if not (ROOT / path).is_file():
            missing.append(path)
        elif name and path.partition("/")[0] in PACKAGES:
            found = import_module(path.removesuffix(".py").replace("/", "."))
            for part in name.split("."):
                found = getattr(found, part, None)
            missing += [f"{path}:{name}"] * (found is None)
    assert missing == []


def test_every_help_summary_fits_in_one_line() -> None:
    summaries = {name: command.get_short_help_str(limit=200) for name, command in commands(main)}
    assert {name: text for name, text in summaries.items() if not 0 < len(text) <= LONGEST_SUMMARY} == {}


AROUND_THE_DOOR = re.compile(
    r"^\s*print\(|\bprint\)|sys\.__std(?:out|err)__|sys\.std(?:out|err)\.buffer|\bbeneath\(|os\.write\([12],|Console\(|\\x1b",
    re.MULTILINE,
)
BENEATH = {
    "coordinator/terminal.py": "the door",
    "coordinator/cli/commands/top.py": "a screen, whose lines are cleaned as they are made",
    "coordinator/cli/top/keyboard.py": "the sequences of keys, which are read",
    "coordinator/code/unpack.py": "the text of a program that runs in pods",
}


def test_nothing_that_is_printed_goes_around_the_door_to_the_terminal() -> None:
    found = {name for name in modules() if name.startswith("coordinator/") and AROUND_THE_DOOR.search(files()[name])}
    assert found == set(BENEATH)
