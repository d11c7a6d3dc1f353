"""JSON as API servers send it.

One rule: one object that nobody can read must not hide the others that come with it: what is nested beyond all reason
is cut off, and reads as null. (A Kubernetes API server keeps 10,000 levels, the fastest reader takes 1,024.)
"""

import re
from typing import Any

import orjson

DEEPEST = 500
"""Levels that are read; whoever takes an object asks for far fewer."""
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[{]|[\]}]', re.DOTALL)


def loads(text: bytes) -> Any:
    """Parse; orjson.JSONDecodeError for what is no JSON."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        if "depth" not in str(error):
            raise
    return orjson.loads(_cut(text))


def _cut(text: bytes) -> bytes:
    """The same text with null for whatever lies below the deepest level."""
    kept: list[bytes] = []
    depth = position = 0
    for token in _TOKEN.finditer(text):
        match token.group()[:1]:
            case b"{" | b"[":
                depth += 1
                if depth == DEEPEST + 1:
                    kept += [text[position : token.start()], b"null"]
            case b"}" | b"]":
                if depth == DEEPEST + 1:
                    position = token.end()
                depth -= 1
    return b"".join([*kept, text[position:]])
