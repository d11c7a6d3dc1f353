"""What keeps a job from submitting itself."""

import ast
from concurrent.futures import ThreadPoolExecutor

import pytest

from torchq._errors import Refused
from torchq._functions.guards import Importing, is_guard, refuse_while_importing


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


def test_nothing_is_submitted_while_a_job_imports_from_any_thread() -> None:
    refuse_while_importing()
    with Importing("train"), ThreadPoolExecutor(1) as pool:
        error = pool.submit(refuse_while_importing).exception()
    assert isinstance(error, Refused)
    assert str(error).startswith("the job imports train, which submits a job again: put what submits under `if __name")
    refuse_while_importing()
