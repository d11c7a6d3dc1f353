"""Kubernetes quantities as exact integers in the canonical units of `crds.resources.amounts`.

One rule: floats are never used: a quantity is a fraction until it is rounded up, once.
"""

import re
from fractions import Fraction
from functools import lru_cache

_SUFFIXES = {
    "": Fraction(1),
    **{
        suffix: Fraction(10) ** power
        for suffix, power in zip("numkMGTPE", (-9, -6, -3, 3, 6, 9, 12, 15, 18), strict=True)
    },
    **{f"{suffix}i": Fraction(2) ** (10 * power) for power, suffix in enumerate("KMGTPE", start=1)},
}
PATTERN = r"^[+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]?|[eE][+-]?[0-9]{1,2})$"
"""The pattern of a quantity that is not negative, for schemas."""
_QUANTITY = re.compile(
    r"(?P<sign>[+-]?)(?P<number>[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:(?P<suffix>[KMGTPE]i|[numkMGTPE]?)|[eE](?P<exponent>[+-]?[0-9]{1,2}))"
)
_LONGEST = 64
"""Maximum number of characters of a quantity: more than any useful number needs, and still quick to compute with."""
_LARGEST = 2**63 - 1
"""The largest quantity; Kubernetes stores quantities in 64 bits."""
_NO_QUANTITY = "is not a quantity"
_EXAMPLES = ": write a number with an optional suffix, as in 500m or 1.5 for cpu, and 512Mi or 2Gi for memory"
_MISSPELLED = re.compile(
    r"(?P<number>[0-9]+(?:[.,][0-9]+)?) ?(?:(?P<unit>[kmgtp])(?P<binary>i?)(?P<bytes>b?))?", re.IGNORECASE
)
"""What is often written for a quantity, as in 16GB, 512 mb, 2gi, 1g or 1,5."""
_REMEMBERED = 4096
"""Size of the caches of parsed quantities: many jobs request the same amounts."""
_BINARY = ("memory", "ephemeral-storage", "storage")


def canonical(name: str) -> str:
    """Return a resource name without the prefix of a ResourceQuota: `requests.cpu` becomes `cpu`."""
    return name.removeprefix("requests.")


def parse(name: str, quantity: str | int | float) -> int:
    """Return a quantity of a canonical resource in thousandths of a core for `cpu`, else in whole units, rounded up.

    Raise ValueError, with the text, for a value that is not a quantity, is negative or does not fit into 64 bits.
    """
    amount = _amount(name, quantity)
    if amount > _LARGEST:
        raise ValueError(f"quantity {quantity!r} is too large")
    return amount


def parse_capped(name: str, quantity: str | int | float) -> int:
    """Return the same as `parse`, but the largest value of 64 bits for a larger quantity, as Kubernetes does."""
    return min(_amount(name, quantity), _LARGEST)


def _amount(name: str, quantity: str | int | float) -> int:
    rounded = _multiply_rounded_up(_as_text(quantity), 1000 if name == "cpu" else 1)
    if rounded is None:
        raise ValueError(f"quantity {quantity!r} must not be negative")
    return rounded


def exact(quantity: str | int | float) -> Fraction:
    """Return the number that a quantity stands for, in the grammar of k8s.io/apimachinery.

    Raise ValueError, with the text, for any other text.
    """
    return _exact(_as_text(quantity))


def _as_text(quantity: str | int | float) -> str:
    if isinstance(quantity, bool) or not isinstance(quantity, str | int | float):
        raise ValueError(f"{quantity!r} {_NO_QUANTITY}{_EXAMPLES}")
    return str(quantity)


@lru_cache(_REMEMBERED)
def _multiply_rounded_up(text: str, times: int) -> int | None:
    """Return a quantity, multiplied by a number and rounded up; None if it is negative."""
    value = _exact(text) * times
    return None if value < 0 else -(-value.numerator // value.denominator)


@lru_cache(_REMEMBERED)
def _exact(text: str) -> Fraction:
    if len(text) > _LONGEST:
        raise ValueError(f"a text of {len(text)} characters {_NO_QUANTITY}{_EXAMPLES}")
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} {_NO_QUANTITY}{_suggest(text)}")
    unit = Fraction(10) ** int(match["exponent"]) if match["exponent"] else _SUFFIXES[match["suffix"] or ""]
    value = Fraction(match["number"].removesuffix(".")) * unit
    return -value if match["sign"] == "-" else value


def _suggest(text: str) -> str:
    """Return the quantity that a text may stand for, for the end of a message; else how quantities are written."""
    found = _MISSPELLED.fullmatch(text)
    if found is None:
        return _EXAMPLES
    number, unit = found["number"].replace(",", "."), (found["unit"] or "").upper()
    if unit and (found["binary"] or not found["bytes"]):  # a unit without B is binary, as for docker and torchrun
        unit += "i"
    return f"; did you mean {number}{'k' if unit == 'K' else unit}?"


def in_base_units(name: str, amount: int) -> float:
    """Return an amount in base units: cores for cpu, bytes for memory, a number for all others."""
    return amount / 1000 if name == "cpu" else float(amount)


def format_amount(name: str, amount: int) -> str:
    """Return an amount as text for users and status fields; `parse` returns the same amount for it."""
    if name == "cpu":
        return f"{amount}m" if amount % 1000 else str(amount // 1000)
    if amount and (name in _BINARY or name.startswith("hugepages-")):
        for power, suffix in reversed(list(enumerate("KMGTPE", start=1))):
            if amount % 2 ** (10 * power) == 0:
                return f"{amount >> (10 * power)}{suffix}i"
    return str(amount)


@lru_cache(_REMEMBERED, typed=True)
def format_canonical(quantity: str | int | float) -> str:
    """Return a quantity as an API server writes it: with the largest suffix that leaves a whole number.

    Raise ValueError for a value that is not a quantity.
    """
    value, text = exact(quantity), str(quantity)
    if text.endswith("i") and abs(value) >= 1024:
        return _with_suffix(-(-value.numerator // value.denominator), 1024, ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))
    nanos = value * 10**9
    scaled = _with_suffix(
        -(-nanos.numerator // nanos.denominator), 1000, ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")
    )
    exponent = bool(re.search(r"[eE][+-]?[0-9]+$", text))
    return _EXPONENTS.get(scaled[-1:], "").join((scaled.rstrip("numkMGTPE"), "")) if exponent else scaled


_EXPONENTS = {"n": "e-9", "u": "e-6", "m": "e-3", "k": "e3", "M": "e6", "G": "e9", "T": "e12", "P": "e15", "E": "e18"}


def _with_suffix(value: int, base: int, suffixes: tuple[str, ...]) -> str:
    if value == 0:
        return "0"
    step = 0
    while value % base == 0 and step < len(suffixes) - 1:
        value, step = value // base, step + 1
    return f"{value}{suffixes[step]}"
