"""The table of the values that a training may report, and of the values that are sent for them."""

import array
import datetime
import enum
import importlib
import importlib.util
import json
import math
from collections import OrderedDict, namedtuple
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchq._training.json_values import as_text
from torchq._training.readings import LONGEST_TEXT, read, sendable

NOT_FINITE = "is NaN, which JSON does not have: it goes as text"
SHAPE = "has several values: its shape goes"
LARGE = "is large: its shape goes"
Pair = namedtuple("Pair", "first second")


class Kind(enum.IntEnum):
    WARM = 2


class Hostile:
    """An object whose every conversion fails."""

    @property
    def shape(self) -> object:
        raise RuntimeError

    def _fail(self, *_: object) -> Any:
        raise ValueError

    __float__ = __index__ = __str__ = __len__ = __iter__ = item = _fail


class HostileList(list[int]):
    def __iter__(self) -> Any:
        raise ValueError


@pytest.mark.parametrize(
    ("value", "expected", "kind"),
    [
        (3, 3, ""),
        (0.5, 0.5, ""),
        (True, True, ""),
        (None, None, ""),
        ("warm-up", "warm-up", ""),
        (Kind.WARM, 2, ""),
        (Decimal("1.5"), 1.5, ""),
        (Fraction(1, 2), 0.5, ""),
        (2**63 - 1, 2**63 - 1, ""),
        (-(2**63), "-9223372036854775808", "has more than 64 bits: it goes as text"),
        pytest.param(10**5000, "int", "has more than 64 bits: it goes as text", id="5000 digits"),
        (math.nan, "NaN", NOT_FINITE),
        (math.inf, "inf", NOT_FINITE.replace("NaN", "inf")),
        (-math.inf, "-inf", NOT_FINITE.replace("NaN", "-inf")),
        (Decimal("nan"), "NaN", NOT_FINITE),
        (1j, "1j", "is a complex: its text goes"),
        ("\ud800", "?", ""),
        ("x" * 201, "x" * LONGEST_TEXT + "...", ""),
        ((0.1, 0.9), [0.1, 0.9], ""),
        ([1, [2, None]], [1, [2, None]], ""),
        (Pair(1, 2), [1, 2], ""),
        (OrderedDict({1: "a"}), {"1": "a"}, ""),
        ([1, math.nan], [1, "NaN"], NOT_FINITE),
        (list(range(17)), "list of 17", LARGE),
        ([[[[1]]]], [[["list of 1"]]], LARGE),
        (b"abc", "bytes of 3", SHAPE),
        ({1, 2}, "set of 2", SHAPE),
        (array.array("d", [1, 2]), "array of 2", SHAPE),
        (Path("a"), "a", f"is a {type(Path()).__name__}: its text goes"),
        (datetime.date(2026, 1, 2), "2026-01-02", "is a date: its text goes"),
        (Hostile(), "Hostile", SHAPE),
        (HostileList([1]), "HostileList", "cannot be read: its type goes"),
    ],
)
def test_any_value_goes_as_json(value: object, expected: object, kind: str) -> None:
    values, notes = read({"x": value})
    assert (values, notes) == ({"x": expected}, {kind: f"x {kind}"} if kind else {})
    assert type(values["x"]) is type(expected)


@pytest.mark.servers  # PyTorch starts a process when it is imported
@pytest.mark.parametrize("module", ["numpy", "torch"])
def test_scalars_are_numbers_and_arrays_go_as_their_shape(module: str) -> None:
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed (the extra `demo`)")
    library: Any = importlib.import_module(module)
    make = library.array if module == "numpy" else library.tensor
    kind = type(make([1])).__name__
    given = {
        "scalar": make(0.5),
        "whole": make(3),
        "one": make([0.25]),
        "flag": make(True),
        "nan": make(math.nan),
        "vector": make([1.0, 2.0]),
        "matrix": make([[1.0, 2.0]]),
        "none": make([]),
    }
    values, _ = read(given)
    shapes = {"vector": f"{kind} of shape (2,)", "matrix": f"{kind} of shape (1, 2)", "none": f"{kind} of shape (0,)"}
    assert values == {"scalar": 0.5, "whole": 3, "one": 0.25, "flag": True, "nan": "NaN", **shapes}
    assert values["flag"] is True


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ({"step": 5.0, "loss": 1}, {"step": 5, "loss": 1}),
        ({"step": 5.5}, None),
        ({"step": -1}, None),
        ({"step": True}, None),
        ({"step": "5"}, None),
        ({"step": 2**53}, None),
        ({"loss": 1}, None),
        ({"step": 1, "checkpoint": 2.0}, {"step": 1, "checkpoint": 2}),
        ({"step": 1, "checkpoint": math.nan}, {"step": 1}),
        ({"step": 1, "samples_per_second": -0.5}, {"step": 1, "samples_per_second": "-0.5"}),
        ({"step": 1, "none": None, "": 1, "größe": 2}, {"step": 1, "gr__e": 2}),
    ],
)
def test_the_coordinator_gets_only_what_it_can_compute_with(given: dict[str, Any], sent: object) -> None:
    assert sendable(read(given)[0]) == sent


@given(
    st.dictionaries(
        st.text() | st.integers(),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.complex_numbers(),
            lambda inner: st.lists(inner) | st.tuples(inner) | st.dictionaries(st.integers(), inner),
            max_leaves=8,
        ),
        max_size=4,
    )
)
def test_nothing_raises_and_all_is_json(given: dict[Any, Any]) -> None:
    values, _ = read(given)
    assert json.loads(as_text(values)) == values
    sendable({"step": 1, **values})
