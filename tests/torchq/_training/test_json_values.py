"""The values that can be sent as JSON, and the messages about all other values."""

import importlib.util
import json
import math
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchq._errors import Invalid
from torchq._training.json_values import DEEPEST, LARGEST, as_json, as_number, as_text

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-LARGEST, LARGEST)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


class Scalar:
    """A number such as NumPy and PyTorch have."""

    ndim = 0

    def __init__(self, value: float) -> None:
        self.value = value

    def item(self) -> float:
        return self.value

    def __float__(self) -> float:
        return float(self.value)


class Array(Scalar):
    ndim = 1

    def __float__(self) -> float:
        raise RuntimeError("a Tensor with 2 elements cannot be converted to Scalar")

    def tolist(self) -> list[float]:
        return [self.value]


@given(JSON)
def test_a_json_value_comes_back_as_it_was(value: Any) -> None:
    assert json.loads(as_text(as_json(value, "x"))) == value


@pytest.mark.parametrize(
    ("value", "expected"), [(3, 3), (0.5, 0.5), (Scalar(2.5), 2.5), (Decimal("1.5"), 1.5), (Fraction(1, 2), 0.5)]
)
def test_a_number_of_any_kind_is_a_number(value: object, expected: float) -> None:
    assert as_number(value, "loss") == expected


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (math.nan, "loss: is nan, which JSON does not have"),
        (Scalar(math.inf), "loss: is inf, which JSON"),
        ("0.5", "loss: must be a number, not '0.5'"),
        (True, "loss: must be a number, not True"),
        (None, "loss: must be a number, not NoneType"),
        (1j, "loss: must be a number, not complex"),
        (Array(1.0), "loss: must be one number, not tests."),
        (2**53, "loss: must be from -9007199254740991"),
        (10**400, "loss: must be from -9007199254740991"),
    ],
)
def test_what_is_no_finite_number_is_refused_with_its_name(value: object, words: str) -> None:
    with pytest.raises(Invalid, match=words):
        as_number(value, "loss")


def _deep() -> object:
    value: object = 0
    for _ in range(DEEPEST + 1):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"a": [0, (1, 2)]}, r"result.a\[1\]: tuple is not JSON: give a list"),
        ({"a": Path("x")}, r"result.a: pathlib\.\w+ is not JSON: give str\(\) of it"),
        ({1: 2}, "result: the key 1 is int: the keys of a JSON map are text"),
        ([math.inf], r"result\[0\]: is inf"),
        ([Array(0.0)], r"result\[0\]: .*Array is not JSON: give .tolist\(\)"),
        ("\ud800", "result: the text is not valid Unicode"),
        (_deep(), "more than 50 lists and maps within each other"),
        (object(), "result: object is not JSON: give numbers, text, lists and maps"),
        (b"x", "result: bytes is not JSON"),
    ],
)
def test_what_is_no_json_is_refused_with_its_place(value: object, words: str) -> None:
    with pytest.raises(Invalid, match=words):
        as_json(value, "result")


@pytest.mark.servers  # PyTorch starts a process when it is imported
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed (the extra `demo`)")
def test_scalars_of_torch_are_numbers() -> None:
    torch = importlib.import_module("torch")
    assert as_json([torch.tensor(3), torch.tensor(0.5)], "x") == [3, 0.5]
    with pytest.raises(Invalid, match=r"loss: must be one number, not torch\.Tensor"):
        as_number(torch.tensor([0.5, 0.5]), "loss")
