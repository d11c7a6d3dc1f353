"""The table of the values that a function may return, and of the values that are kept."""

import datetime
import importlib
import importlib.util
import json
import math
from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchq._training.json_values import as_text
from torchq._training.kept_values import as_kept

Pair = namedtuple("Pair", "first second")


@dataclass
class Score:
    value: float


class Hostile:
    def __repr__(self) -> str:
        raise ValueError

    def tolist(self) -> None:
        raise RuntimeError


def _deep() -> tuple[object, list[Any]]:
    endless: list[Any] = []
    endless.append(endless)
    return endless, endless


@pytest.mark.parametrize(
    ("value", "expected", "place"),
    [
        ((0.1, (1, 2)), [0.1, [1, 2]], ""),
        (Pair(1, "b"), [1, "b"], ""),
        (OrderedDict(a=1), {"a": 1}, ""),
        (MappingProxyType({"a": 1}), {"a": 1}, ""),
        ({1: "a", False: "b", None: "c", 0.5: "d"}, {"1": "a", "false": "b", "null": "c", "0.5": "d"}, ""),
        ({2: "a", "2": "b"}, {"2": "a", "2 (str)": "b"}, ""),
        ({(1, 2): "a"}, {"(1, 2)": "a"}, ""),
        ([math.nan, math.inf, -math.inf], ["NaN", "inf", "-inf"], ""),
        (2**63, "9223372036854775808", ""),
        (2**63 - 1, 2**63 - 1, ""),
        ("\ud800", "\\ud800", ""),
        ({"a": [{1}]}, {"a": ["{1}"]}, "x.a[0]"),
        (b"ab", "b'ab'", "x"),
        (1j, "1j", "x"),
        (Score(0.5), "Score(value=0.5)", "x"),
        (datetime.date(2026, 1, 2), "datetime.date(2026, 1, 2)", "x"),
        (PurePosixPath("a"), "PurePosixPath('a')", "x"),
        (Hostile(), "<Hostile>", "x"),
    ],
)
def test_any_value_is_kept_as_json(value: object, expected: object, place: str) -> None:
    assert as_kept(value, "x") == (expected, place)


def test_a_list_that_is_within_itself_is_kept_by_its_repr() -> None:
    kept, place = as_kept(_deep()[0], "x")
    assert json.loads(as_text(kept)) == kept
    assert place.startswith("x[0][0]")


@pytest.mark.servers  # PyTorch starts a process when it is imported
@pytest.mark.parametrize("module", ["numpy", "torch"])
def test_scalars_are_numbers_and_arrays_are_lists(module: str) -> None:
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed (the extra `demo`)")
    library: Any = importlib.import_module(module)
    make = library.array if module == "numpy" else library.tensor
    value = [make(3), make(True), make(math.nan), make([[1.0, math.inf]])]
    assert as_kept(value, "x") == ([3, True, "NaN", [[1.0, "inf"]]], "")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.dates(),
        lambda inner: st.lists(inner) | st.tuples(inner) | st.dictionaries(st.integers() | st.text(), inner),
        max_leaves=12,
    )
)
def test_nothing_raises_and_all_is_json(value: object) -> None:
    kept, _ = as_kept(value, "x")
    assert json.loads(as_text(kept)) == kept
