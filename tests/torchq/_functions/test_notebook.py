"""The module that is made from a notebook. The tests run the cells as a notebook does, and then the module alone."""

from collections.abc import Sequence
from typing import Any

import pytest

from torchq._errors import Refused
from torchq._functions.notebook import make_module


def executed(cells: Sequence[str]) -> dict[str, Any]:
    """Return the values of the names after the cells have run."""
    values: dict[str, Any] = {"__name__": "__main__", "display": print, "get_ipython": object}
    for cell in cells:
        exec(compile(cell, "<cell>", "exec"), values)
    return values


def module_of(cells: Sequence[str], name: str = "f") -> str:
    return make_module(["", *cells], name, executed(cells))


def call(source: str, *arguments: object) -> Any:
    """Call the function `f` of a module."""
    values: dict[str, Any] = {"__name__": "torchq_notebook"}
    exec(compile(source, "torchq_notebook.py", "exec"), values)
    return values["f"](*arguments)


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["def f(): return 1"], 1),
        (["def f(): return 1", "def f(): return 2"], 2),
        (["import math", "def f(): return math.floor(2.5)"], 2),
        (["import os.path\nimport os.path as p, json as j", "def f(): return j.dumps(p.basename('a/b'))"], '"b"'),
        (["import xml.dom", "import xml.sax", "def f(): return xml.dom.__name__ + xml.sax.__name__"], "xml.domxml.sax"),
        (["from math import floor as down, ceil", "def f(): return down(2.5) + ceil(2.5)"], 5),
        (["from __future__ import annotations\ndef f(x: Unknown = 1): return x"], 1),
        (["def f(): return g() + 1", "def g(): return h(1)", "def h(x): return x * 2"], 3),
        (["def even(n): return n == 0 or odd(n - 1)\ndef odd(n): return n != 0 and even(n - 1)", "f = even", "def f(): return even(4)"], True),  # noqa: E501
        (["LR = 3e-4", "LR = LR * 10", "def f(): return LR"], 3e-4 * 10),
        (["config = {'lr': [1, (2, 'a$')]}", "config['lr'].append(None)", "def f(): return config"], {"lr": [1, (2, "a$"), None]}),  # noqa: E501
        (["class A:\n    x = 1", "class B(A):\n    def y(self): return self.x + g()", "def g(): return 2", "def f(): return B().y()"], 3),  # noqa: E501
        (["class A: x = 1", "class B(A): pass", "class A: x = 2", "def f(): return B().x"], 2),
        (["import functools\nN = 2", "def f(x=N):\n    return twice(x)\n\n@functools.lru_cache(maxsize=N)\ndef twice(x):\n    # doubles\n    return 2 * x"], 4),  # noqa: E501
        (["def f(): return __name__"], "torchq_notebook"),
        (["open = 3", "def f(): return open"], 3),
        (["x = object()", "def f():\n    x = 5\n    return x"], 5),
    ],
)  # fmt: skip
def test_the_module_does_what_the_notebook_does(cells: list[str], expected: object) -> None:
    assert call(module_of(cells)) == expected


def test_nothing_that_the_function_does_not_need_goes() -> None:
    source = module_of(["import json, math\nSECRET = 'x'", "def g(): ...", "def f(): return math.pi", "print(1)"])
    assert source == "import math\n\ndef f(): return math.pi\n"


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        (["model = object()", "def f(): return model"], r"model, which cell 1 makes \(object\)"),
        (["def f(): return x"], "f needs what the job does not have: x, which no cell defines"),
        (["from math import *", "def f(): return floor(1.5)"], r"floor, .*; `from math import \*` hides what it"),
        (["def f(): display(1); get_ipython()"], "display, which only a notebook has; get_ipython, which only a"),
        (["def f(): return g()", "def g(): return data, 1", "data = [object()]"], r"data, which cell 3 makes \(list\)"),
        (["x = float('nan')", "def f(): return x"], r"x, which cell 1 makes \(float\)"),
        (
            ["try: import json\nexcept ImportError: json = 0", "def f(): return json"],
            r"json, .*\(module\)",
        ),
        (["def f(): return 1", "f = print"], "no cell defines f as a function"),
    ],
)
def test_what_cannot_go_is_named(cells: list[str], words: str) -> None:
    with pytest.raises(Refused, match=words):
        module_of(cells)


def test_a_cell_that_is_no_python_is_passed_over() -> None:
    cells = ["", "def f(:", "\0", "get_ipython().run_line_magic('matplotlib', 'inline')", "def f(): return 1"]
    assert make_module(cells, "f", {}) == "def f(): return 1\n"


def test_the_function_of_a_cell_magic_is_refused_with_what_to_do() -> None:
    cells = ["", "get_ipython().run_cell_magic('time', '', 'def f(): return 1')"]
    with pytest.raises(Refused, match="a cell with %% in its first line cannot go"):
        make_module(cells, "f", {})
