"""The place in the folder of the module of a function, and functions that cannot be sent."""

import functools
import importlib.util
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from torchq._errors import Refused
from torchq._functions import places
from torchq._functions.places import Place

SOURCE = "def train(lr): return lr\n"


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Callable[..., Callable[..., Any]]]:
    """Return a function that writes a file, loads it under a name and returns its function `train`."""
    loaded = []

    def load(path: str, name: str) -> Callable[..., Any]:
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(SOURCE)
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        loaded.append(name)
        spec.loader.exec_module(module)
        return module.train  # type: ignore[no-any-return]

    yield load
    for name in loaded:
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("path", "name", "search_path", "expected"),
    [
        ("job_f.py", "job_f", ["."], ("job_f.py", (".",))),
        ("pkg_f/job.py", "pkg_f.job", ["."], ("pkg_f/job.py", (".",))),
        ("pkg_f/__init__.py", "pkg_f", ["."], ("pkg_f/__init__.py", (".",))),
        ("src/pkg_f/job.py", "pkg_f.job", ["src", "/usr/lib", "."], ("src/pkg_f/job.py", ("src", "."))),
        ("src/pkg_f/job.py", "pkg_f.job", [".", "gone", "src", "."], ("src/pkg_f/job.py", (".", "src"))),
        ("src/pkg_f/job.py", "pkg_f.job", ["..", "/"], ("src/pkg_f/job.py", ("src",))),
        ("job_f.py", "job_f", [".venv/lib/site-packages", "."], ("job_f.py", (".",))),
    ],
)
def test_a_module_is_found_as_here(
    load: Any, tmp_path: Path, path: str, name: str, search_path: list[str], expected: tuple[str, tuple[str, ...]]
) -> None:
    (tmp_path / ".venv/lib/site-packages").mkdir(parents=True)
    function = load(path, name)
    entries = [str(tmp_path / entry) for entry in search_path]
    assert places.find(function, str(tmp_path), entries) == Place(name, *expected)


@pytest.mark.parametrize(
    ("file", "spec", "expected"),
    [
        ("train.py", None, "train"),
        ("scripts/train-lr.py", None, "train-lr"),
        ("pkg/job.py", "pkg.job", "pkg.job"),
        ("pkg/__main__.py", "pkg.__main__", "pkg.__main__"),
    ],
)
def test_a_script_goes_by_the_name_of_its_file(
    load: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, spec: str | None, expected: str
) -> None:
    function = load(file, "__main__of_test")
    script = SimpleNamespace(__file__=str(tmp_path / file), __spec__=spec and SimpleNamespace(name=spec))
    monkeypatch.setitem(sys.modules, "__main__", script)  # type: ignore[arg-type]
    function.__module__ = "__main__"
    assert places.find(function, str(tmp_path), []).module == expected


@pytest.mark.parametrize(
    ("path", "name", "words"),
    [
        (".venv/lib/site-packages/lib_f/job.py", "lib_f.job", "lib_f/job.py, an installed package"),
        ("other_f.py", "job_f", "other_f.py is not where Python looks for the module job_f"),
    ],
)
def test_a_module_that_the_job_cannot_import_is_refused(
    load: Any, tmp_path: Path, path: str, name: str, words: str
) -> None:
    with pytest.raises(Refused, match=words):
        places.find(load(path, name), str(tmp_path), [str(tmp_path)])


def test_a_module_outside_of_the_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"JSONDecoder|dumps is in .*: start in your project's folder, or name it by"):
        places.find(json.dumps, str(tmp_path), [str(tmp_path)])


@pytest.mark.parametrize(
    ("file", "words"),
    [
        (None, "train is in no file: write it to a file of this folder"),
        ("train", "the job can only import a file that ends with .py"),
        ("train.v2.py", "train.v2.py cannot be imported, because its name has a dot: rename it"),
    ],
)
def test_a_script_that_cannot_be_imported_is_refused(
    load: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str | None, words: str
) -> None:
    function = load("a_script_f.py", "a_script_f")
    script = ModuleType("__main__")
    if file:
        script.__file__ = str(tmp_path / file)
    monkeypatch.setitem(sys.modules, "__main__", script)
    function.__module__ = "__main__"
    with pytest.raises(Refused, match=words):
        places.find(function, str(tmp_path), [])


class Trainer:
    def fit(self) -> None: ...


def inner() -> Callable[..., None]:
    def nested() -> None: ...

    return nested


async def wait() -> None: ...


def count() -> Iterator[int]:
    yield 1


async def count_async() -> Any:
    yield 1


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda: 1, "a lambda has no name"),
        (inner(), r"inner.<locals>.nested is made within another function, .*: move it out to its module"),
        (Trainer.fit, "Trainer.fit belongs to a class: write a function of the module"),
        (wait, r"wait is an async function: write one that calls asyncio.run\(wait"),
        (count, "count yields values: return one value"),
        (count_async, "count_async yields values"),
        (functools.wraps(wait)(lambda: 1), None),
    ],
)
def test_a_function_that_cannot_go_by_name_is_refused(function: Callable[..., Any], words: str | None) -> None:
    if words is None:
        return places.check_kind(function)
    with pytest.raises(Refused, match=words):
        places.check_kind(function)
    return None
