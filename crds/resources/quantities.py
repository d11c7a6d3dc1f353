"""Kubernetes quantities as exact integers in the canonical units of `crds.resources.amounts`.

One rule: no float ever: a quantity is a fraction until it is rounded up, once.
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
"""What a quantity that is not negative looks like, for schemas."""
_QUANTITY = re.compile(
    r"(?P<sign>[+-]?)(?P<number>[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:(?P<suffix>[KMGTPE]i|[numkMGTPE]?)|[eE](?P<exponent>[+-]?[0-9]{1,2}))"
)
_LONGEST = 64
"""Characters a quantity may have: beyond any sensible number, and short enough to compute with."""
_LARGEST = 2**63 - 1
"""Kubernetes keeps quantities in 64 bits."""
_NO_QUANTITY = "is not a quantity: write a number with an optional suffix, as in 500m, 1.5 or 2Gi"
_REMEMBERED = 4096
"""Quantities that are not read again: many jobs ask for the same."""
_BINARY = ("memory", "ephemeral-storage", "storage")


def canonical(name: str) -> str:
    """A resource name without ResourceQuota's prefix: `requests.cpu` is `cpu`."""
    return name.removeprefix("requests.")


def parse(name: str, quantity: str | int | float) -> int:
    """A quantity of a canonical resource: thousandths of a core for `cpu`, whole units rounded up for everything else.

    ValueError, with the text in it, for anything that is not a quantity, is negative or does not fit 64 bits.
    """
    amount = _amount(name, quantity)
    if amount > _LARGEST:
        raise ValueError(f"quantity {quantity!r} is too large")
    return amount


def capped(name: str, quantity: str | int | float) -> int:
    """The same, but what does not fit 64 bits is the most that does: so Kubernetes reads it."""
    return min(_amount(name, quantity), _LARGEST)


def _amount(name: str, quantity: str | int | float) -> int:
    rounded = _rounded(_text(quantity), 1000 if name == "cpu" else 1)
    if rounded is None:
        raise ValueError(f"quantity {quantity!r} must not be negative")
    return rounded


def exact(quantity: str | int | float) -> Fraction:
    """The number a quantity stands for, in the grammar of k8s.io/apimachinery. ValueError with the text in it."""
    return _exact(_text(quantity))


def is_quantity(text: str) -> bool:
    """Whether a text is a quantity that is not negative."""
    try:
        return _exact(text) >= 0
    except ValueError:
        return False


def _text(quantity: str | int | float) -> str:
    if isinstance(quantity, bool) or not isinstance(quantity, str | int | float):
        raise ValueError(f"{quantity!r} {_NO_QUANTITY}")
    return str(quantity)


@lru_cache(_REMEMBERED)
def _rounded(text: str, times: int) -> int | None:
    """So many times a quantity, rounded up; None if it is negative."""
    value = _exact(text) * times
    return None if value < 0 else -(-value.numerator // value.denominator)


@lru_cache(_REMEMBERED)
def _exact(text: str) -> Fraction:
    found = _QUANTITY.fullmatch(text) if len(text) <= _LONGEST else None
    if found is None:
        raise ValueError(f"{text[:_LONGEST]!r} {_NO_QUANTITY}")
    unit = Fraction(10) ** int(found["exponent"]) if found["exponent"] else _SUFFIXES[found["suffix"] or ""]
    value = Fraction(found["number"].removesuffix(".")) * unit
    return -value if found["sign"] == "-" else value


def text(name: str, amount: int) -> str:
    """An amount for people and status fields; `parse` reads it back unchanged."""
    if name == "cpu":
        return f"{amount}m" if amount % 1000 else str(amount // 1000)
    if amount and (name in _BINARY or name.startswith("hugepages-")):
        for power, suffix in reversed(list(enumerate("KMGTPE", start=1))):
            if amount % 2 ** (10 * power) == 0:
                return f"{amount >> (10 * power)}{suffix}i"
    return str(amount)


@lru_cache(_REMEMBERED, typed=True)
def written(quantity: str | int | float) -> str:
    """A quantity as an API server writes it back: the largest suffix that leaves a whole number. ValueError."""
    value, text = exact(quantity), str(quantity)
    if text.endswith("i") and abs(value) >= 1024:
        return _scaled(-(-value.numerator // value.denominator), 1024, ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))
    nanos = value * 10**9
    scaled = _scaled(-(-nanos.numerator // nanos.denominator), 1000, ("n", "u", "m", "", "k", "M", "G", "T", "P", "E"))
    exponent = bool(re.search(r"[eE][+-]?[0-9]+$", text))
    return _EXPONENTS.get(scaled[-1:], "").join((scaled.rstrip("numkMGTPE"), "")) if exponent else scaled


_EXPONENTS = {"n": "e-9", "u": "e-6", "m": "e-3", "k": "e3", "M": "e6", "G": "e9", "T": "e12", "P": "e15", "E": "e18"}


def _scaled(value: int, base: int, suffixes: tuple[str, ...]) -> str:
    if value == 0:
        return "0"
    step = 0
    while value % base == 0 and step < len(suffixes) - 1:
        value, step = value // base, step + 1
    return f"{value}{suffixes[step]}"
