"""The statements of a module that a job does not run when it imports the module."""

import ast

import pytest

from torchq._functions.guards import is_guard


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('if __name__ == "__main__": main()', True),
        ('if "__main__" == __name__ and True: main()', True),
        ("if __name__ == name: main()", False),
        ('if x == "__main__": main()', False),
        ("if True: main()", False),
        ("main()", False),
        ("for x in y: main()", False),
    ],
)
def test_is_guard(source: str, expected: bool) -> None:
    assert is_guard(ast.parse(source).body[0]) is expected
