"""Amounts of resources in words."""

from typing import Any


def format_amounts(amounts: dict[str, Any] | None) -> str:
    """Format amounts by name in one word."""
    return ",".join(f"{name}={amount}" for name, amount in (amounts or {}).items()) or "-"
