"""The formats of numbers in documents and statuses.

One rule: numbers of one kind are formatted in the same way everywhere.
"""

from collections.abc import Sequence

from crds.resources import quantities
from crds.resources.amounts import Amounts


def percent(part: int, whole: int) -> str:
    """Return a part of a whole as whole percents, "0%" if the whole is 0."""
    return f"{100 * part // whole if whole else 0}%"


def format_amounts(amounts: Amounts) -> dict[str, str]:
    """Return amounts as Kubernetes quantities, sorted by name."""
    return {name: quantities.format_amount(name, amount) for name, amount in sorted(amounts.items())}


def percentile(values: Sequence[float], part: float) -> float | None:
    """Return the smallest value that `part` of the values do not exceed; None if there are no values."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, max(0, -(-int(part * 1000) * len(ranked) // 1000) - 1))] if ranked else None
