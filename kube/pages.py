"""Pages of lists: the number of objects in a page, and how a page is read.

One rule: the memory and the time that a page costs are bounded, for any objects. A page that is too large is requested
again with fewer objects. A single object is read as the object of an event is (`kube.jsontext`).
"""

import re
from typing import Any

import orjson

from crds.torchjob.size_limits import LargeObject
from kube import jsontext

MOST_BYTES = 8 * 1024 * 1024
"""The most bytes of a page of several objects. 500 usual objects have 1 to 5 MB."""
MOST_VALUES = 600_000
"""The most separators in a page of several objects. Each stands for about one value: at least 70 bytes of memory."""
FEW_BYTES = 1024 * 1024
"""The most bytes of a page whose values are not counted."""
FEWER = 8
"""The factor by which the next page is smaller after a page that was too large."""
_BEFORE = re.compile(
    rb'\s*\{(?:"(?:apiVersion|kind)":"[^"\\]*",|(?P<metadata>"metadata":\{(?:"\w+":(?:"[^"\\]*"|\d+),?)*\},))*"items":\['
)
"""The beginning of a list. A list of a built-in kind begins with its metadata, a list of another kind does not."""
_AFTER = b'],"kind":"'
"""The text behind the items of a list that does not begin with its metadata. The last occurrence is the right one: the
kind and the metadata of a list hold no lists."""


def smaller_limit(limit: int) -> int:
    """Return the number of objects to request after a page of `limit` objects that was too large."""
    return max(1, limit // FEWER)


def next_limit(limit: int, size: int, most: int) -> int:
    """Return the number of objects to request after a page of `limit` objects with `size` bytes; at most `most`."""
    return min(most, 2 * limit) if 4 * size <= MOST_BYTES else limit


def read(text: bytes, limit: int) -> Any:
    """Return the parsed page of at most `limit` objects (0: of all objects); None if it is too large to be parsed at
    once. Raise orjson.JSONDecodeError if the text is not JSON."""
    if limit <= 1:
        return (_read_single(text) if limit else None) or jsontext.loads(text)
    separators = len(text) - len(text.translate(None, b",[{")) if FEW_BYTES < len(text) <= MOST_BYTES else 0
    if len(text) > MOST_BYTES or separators > MOST_VALUES:
        return None
    try:
        return jsontext.parse_without_gc(text)
    except orjson.JSONDecodeError as error:
        if "depth" not in str(error):
            raise
        return None


def _read_single(text: bytes) -> Any:
    """Return the parsed page of one object; None if its text does not have the form that API servers write."""
    head = _BEFORE.match(text)
    if head is None:
        return None
    tail = text.rfind(b"]}" if head["metadata"] else _AFTER)
    if tail < head.end():
        return None
    item = text[head.end() : tail]
    try:
        page = orjson.loads(text[: head.end()] + text[tail:])
        body = jsontext.loads(item)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(body, dict):
        return None
    careful = LargeObject(body) if len(item) >= jsontext.LONG and not isinstance(body, LargeObject) else body
    return {**page, "items": [careful]}
