"""What keeps a job from submitting itself."""

import ast
import threading
from typing import Any

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
    caught: list[Any] = []

    def submit() -> None:
        with pytest.raises(
            Refused, match='the job imports train, which submits a job again: put .* "__main__"'
        ) as info:
            refuse_while_importing()
        caught.append(info.value)

    with Importing("train"):
        thread = threading.Thread(target=submit)
        thread.start()
        thread.join()
    assert len(caught) == 1
    refuse_while_importing()
