"""Tracebacks show only the user's code."""

import sys
from collections.abc import Callable
from typing import Any

import pytest

from torchq._functions.failures import PACKAGE, describe
from torchq._functions.remote import remote


def fail() -> None:
    raise ValueError("no data")


def chain() -> None:
    try:
        remote(fail)()
    except ValueError as error:
        raise RuntimeError("in vain") from error


@pytest.mark.parametrize("function", [fail, chain, remote(chain)])
def test_a_traceback_has_no_frames_of_the_package(function: Callable[[], None]) -> None:
    with pytest.raises((ValueError, RuntimeError)) as caught:
        function()
    text = describe(caught.value)
    assert PACKAGE not in text
    assert "in fail\n    raise ValueError" in text
    assert "ValueError: no data" in text


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python has no exception groups")
def test_the_exceptions_of_a_group_are_shown() -> None:
    errors: list[Any] = []
    for function in (fail, remote(fail)):
        with pytest.raises(ValueError) as caught:  # noqa: PT011
            function()
        errors.append(caught.value)
    text = describe(ExceptionGroup("several", errors))
    assert text.count("ValueError: no data") == 2
    assert PACKAGE not in text


def test_a_cycle_of_causes_ends() -> None:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    assert "first" in describe(first)
