"""Amounts of resources in words."""

from typing import Any

from crds.resources import quantities


def format_amounts(amounts: dict[str, Any] | None) -> str:
    """Format amounts by name in one word."""
    return ",".join(f"{name}={amount}" for name, amount in (amounts or {}).items()) or "-"


def readable(name: str, quantity: str) -> str:
    """Return an amount for people: memory in the largest unit, with one digit after the point."""
    if name != "memory":
        return quantity
    amount = float(quantities.exact(quantity))
    for power, suffix in reversed(list(enumerate("KMGTPE", start=1))):
        if amount >= 2 ** (10 * power):
            return f"{amount / 2 ** (10 * power):.1f}".removesuffix(".0") + f"{suffix}i"
    return quantity


def fraction(used: Any, most: Any) -> float | None:
    """Return which part of an amount is used; None if that is not known."""
    try:
        whole = quantities.exact(most)
        return float(quantities.exact(used) / whole) if whole else None
    except ValueError:
        return None
