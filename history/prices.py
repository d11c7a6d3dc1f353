"""What an hour of a resource costs, in the unit of money that an admin has in mind.

One rule: exact. A sum of prices is a fraction, and rounded when a person sees it.

An hour is one of a core of `cpu`, of a GiB of `memory` and other bytes, of one of anything else.
"""

import re
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction

from crds.resources import resource_names

_HOUR = 3600
_BYTES = re.compile(resource_names.BYTES)

Prices = Mapping[str, Decimal]
"""The price of an hour, by the canonical name of the resource."""


def unit(name: str) -> int:
    """Return how many canonical units of a resource have one price: the thousandths of a core, the bytes of a GiB."""
    if name == "cpu":
        return 1000
    return 2**30 if is_bytes(name) else 1


def is_bytes(name: str) -> bool:
    """Return whether a resource is counted in bytes."""
    return _BYTES.fullmatch(name) is not None


def hours(name: str, seconds: int) -> Fraction:
    """Return an amount x seconds as hours of one core, of one GiB, or of one of anything else."""
    return Fraction(seconds, unit(name) * _HOUR)


def cost(seconds: Mapping[str, int], prices: Prices) -> Fraction:
    """Return what sums of amount x seconds cost."""
    return sum((hours(name, seconds.get(name, 0)) * Fraction(price) for name, price in prices.items()), Fraction(0))
