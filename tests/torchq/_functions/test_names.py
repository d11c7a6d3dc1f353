"""The names that a piece of Python code reads, and the names that it defines."""

import ast

import pytest

from torchq._functions.names import given, taken


@pytest.mark.parametrize(
    ("source", "at_once", "later"),
    [
        ("def f(x): return x + y", "", "y"),
        ("def f(): return f()", "", "f"),
        ("@deco(N)\ndef f(a: T = D) -> R: pass", "deco N T D R", ""),
        ("class A(Base):\n    x = Y\n    def f(self): return Z", "Base Y", "Z"),
        ("def f():\n    def g(): return deep\n    return g", "", "deep"),
        ("def f():\n    y = 1\n    return lambda: y", "", ""),
        ("def f(): return [q for q in items]", "", "items q"[:5]),
        ("def f():\n    global n\n    n += 1", "", "n"),
        ("def f():\n    import os\n    return os.getcwd()", "", ""),
        ("def f(d=lambda: outer): pass", "", "outer"),
        ("def f(): return print(np.zeros(3).sum())", "", "print np"),
        ("async def f(): await g()", "", "g"),
    ],
)
def test_taken(source: str, at_once: str, later: str) -> None:
    found = taken(source)
    assert (set(found.at_once), set(found.later)) == (set(at_once.split()), set(later.split()))


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("a = b = c", "a b"),
        ("a, *b = c", "a b"),
        ("a += 1", "a"),
        ("for i in x: j = i", "i j"),
        ("with open(p) as f: pass", "f"),
        ("try:\n    import x\nexcept ImportError:\n    x = None", "x"),
        ("if a:\n    def f(): b = 1", "f"),
        ("print(n := 3)", "n"),
        ("a.b = 1", ""),
        ("x: int = 1", "x"),
    ],
)
def test_given(source: str, names: str) -> None:
    assert given(ast.parse(source).body[0]) == set(names.split())
