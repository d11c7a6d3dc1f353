"""Pages of lists: how many objects are asked for at a time, and how a page is read.

One rule: what a page costs in memory and in time is bounded, whatever its objects hold. A page that is too large is
asked for again with fewer objects. One object alone is read as the object of an event is (`kube.jsontext`).
"""

import re
from typing import Any

import orjson

from crds.torchjob.size_limits import Long
from kube import jsontext

MOST_BYTES = 8 * 1024 * 1024
"""Bytes of a page of several objects. 500 usual objects have 1 to 5 MB."""
MOST_VALUES = 600_000
"""Separators of a page of several objects, of which each stands for about one value: 70 bytes of memory and more."""
FEW_BYTES = 1024 * 1024
"""Bytes of a page whose values are not counted."""
FEWER = 8
"""By how much fewer objects are asked for after a page that was too large."""
_BEFORE = re.compile(
    rb'\s*\{(?:"(?:apiVersion|kind)":"[^"\\]*",|(?P<metadata>"metadata":\{(?:"\w+":(?:"[^"\\]*"|\d+),?)*\},))*"items":\['
)
"""How a list begins: a list of a built-in kind with its metadata, a list of another kind without."""
_AFTER = b'],"kind":"'
"""What follows the items of a list that does not begin with its metadata. Its last occurrence is that: the kind and the
metadata of a list hold no lists."""


def fewer(limit: int) -> int:
    """How many objects to ask for after a page of `limit` objects that was too large."""
    return max(1, limit // FEWER)


def more(limit: int, size: int, most: int) -> int:
    """How many objects to ask for after a page of `limit` objects that had `size` bytes; at most `most`."""
    return min(most, 2 * limit) if 4 * size <= MOST_BYTES else limit


def read(text: bytes, limit: int) -> Any:
    """A page of at most `limit` objects, or all of them if that is 0; None if several objects hold more than is read at
    once. orjson.JSONDecodeError for what is no JSON."""
    if limit <= 1:
        return (_of_one(text) if limit else None) or jsontext.loads(text)
    if len(text) > MOST_BYTES or (len(text) > FEW_BYTES and _values(text) > MOST_VALUES):
        return None
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        if "depth" not in str(error):
            raise
        return None


def _values(text: bytes) -> int:
    return len(text) - len(text.translate(None, b",[{"))


def _of_one(text: bytes) -> Any:
    """A page of one object; None if it is not written as API servers write it."""
    head = _BEFORE.match(text)
    if head is None:
        return None
    tail = text.rfind(b"]}" if head["metadata"] else _AFTER)
    if tail < head.end():
        return None
    item = text[head.end() : tail]
    try:
        page = orjson.loads(text[: head.end()] + text[tail:])
        found = jsontext.loads(item)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(found, dict):
        return None
    careful = Long(found) if len(item) >= jsontext.LONG and not isinstance(found, Long) else found
    return {**page, "items": [careful]}
