"""Long lists in pieces, so that one call to Redis stays short.

One rule: the pieces are consecutive and complete; no item is dropped or repeated.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

T = TypeVar("T")


def chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield the items in lists of `size`; the last list may be shorter. No items give no list."""
    source = iter(items)
    while chunk := list(islice(source, size)):
        yield chunk
