"""Quantities of resources: exact for each suffix, and rounded up to whole units."""

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crds.resources import quantities


@pytest.mark.parametrize(
    ("name", "text", "amount"),
    [
        ("cpu", "1", 1000),
        ("cpu", "500m", 500),
        ("cpu", "0.1", 100),
        ("cpu", "1.0001", 1001),
        ("cpu", "1n", 1),
        ("cpu", "100u", 1),
        ("cpu", "1k", 1_000_000),
        ("cpu", 2, 2000),
        ("cpu", 0.5, 500),
        ("memory", "1", 1),
        ("memory", "1500m", 2),
        ("memory", "128Mi", 128 << 20),
        ("memory", "1.5Gi", 3 << 29),
        ("memory", "1Ki", 1024),
        ("memory", "1Ti", 1 << 40),
        ("memory", "1Pi", 1 << 50),
        ("memory", "1Ei", 1 << 60),
        ("memory", "1M", 10**6),
        ("memory", "1G", 10**9),
        ("memory", "1T", 10**12),
        ("memory", "1P", 10**15),
        ("memory", "1E", 10**18),
        ("memory", "12e6", 12 * 10**6),
        ("memory", "12E6", 12 * 10**6),
        ("memory", "1e-3", 1),
        ("memory", "+5.", 5),
        ("memory", ".5", 1),
        ("nvidia.com/gpu", "8", 8),
        ("jobs", 3, 3),
        ("cpu", "0", 0),
    ],
)
def test_parse_returns_the_amount_in_base_units(name: str, text: str | int | float, amount: int) -> None:
    assert quantities.parse(name, text) == amount


NO_QUANTITIES = [
    "",
    "lots",
    "1 Gi",
    "1gi",
    "1KI",
    "1ki",
    "--1",
    "1e",
    "1e+",
    "1e1000",
    "0x10",
    "1,5",
    "Gi",
    ".",
    "-1",
    "-1m",
]
HARDLY = ["9" * 65, "1E3Ki", "\u0663", "16Ei", "1\n"]


@pytest.mark.parametrize("text", [*NO_QUANTITIES, *HARDLY])
def test_error_names_the_invalid_quantity(text: str) -> None:
    with pytest.raises(ValueError, match="quantity") as error:
        quantities.parse("memory", text)
    assert (repr(text) if len(text) <= 64 else f"{len(text)} characters") in str(error.value)


@pytest.mark.parametrize("value", [None, True, [], {}, float("nan"), float("inf")])
def test_value_other_than_a_number_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="not a quantity"):
        quantities.parse("cpu", value)  # type: ignore[arg-type]


@given(st.decimals(min_value=0, max_value=10**9, places=6), st.sampled_from(["", "n", "u", "m", "k", "Ki", "Mi", "M"]))
def test_parse_rounds_up_by_less_than_one_unit(number: Decimal, suffix: str) -> None:
    text = f"{number:f}{suffix}"
    exact = quantities.exact(text)
    amount = quantities.parse("memory", text)
    assert exact <= amount < exact + 1
    assert Fraction(amount, 1) >= 0


@given(st.sampled_from(["cpu", "memory", "nvidia.com/gpu", "jobs"]), st.integers(0, 2**60))
def test_text_of_an_amount_is_parsed_to_the_same_amount(name: str, amount: int) -> None:
    assert quantities.parse(name, quantities.format_amount(name, amount)) == amount


@pytest.mark.parametrize(
    ("name", "amount", "text"),
    [
        ("cpu", 1500, "1500m"),
        ("cpu", 2000, "2"),
        ("memory", 3 << 29, "1536Mi"),
        ("memory", 1000, "1000"),
        ("jobs", 0, "0"),
    ],
)
def test_text_formats_the_amount_of_a_resource(name: str, amount: int, text: str) -> None:
    assert quantities.format_amount(name, amount) == text


def test_canonical_removes_the_prefix_of_resource_quotas() -> None:
    assert quantities.canonical("requests.nvidia.com/gpu") == "nvidia.com/gpu"
    assert quantities.canonical("cpu") == "cpu"
