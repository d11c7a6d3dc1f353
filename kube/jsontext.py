"""The parser for the JSON of API servers.

One rule: an object that the parser cannot read must not hide the others in the same text. Values below the deepest
level are replaced by null. (A Kubernetes API server keeps 10,000 levels, the fastest parser takes 1,024.)
"""

import gc
import re
from typing import Any

import orjson

from crds.api_resources import TORCHJOBS
from crds.torchjob.size_limits import ObjectWithoutSpec

DEEPEST = 500
"""The levels that are parsed; the checks of objects allow far fewer."""
LONG = 65_536
"""The length in bytes from which a text is parsed with the precautions of this module."""
MOST_VALUES = 60_000
"""The most values of a TorchJob that is parsed as a whole."""
_HEAD = re.compile(
    rb'(?P<event>\{"type":"[A-Z]+","object":)?\{(?:"apiVersion":"[^"\\]*",)?"kind":"%s",'
    rb'(?:"apiVersion":"[^"\\]*",)?"metadata":\{' % TORCHJOBS.kind.encode()
)
_OBJECT = re.compile(rb'(?:\{"type":"[A-Z]+","object":)?\{(?:"(?:apiVersion|kind)":"[^"\\]*",)*"metadata":\{')
"""The beginning of an object, or of an event with an object; the metadata of a list differ."""
_SPEC, _STATUS = b'},"spec":{', b'},"status":{'
_LABELS, _MANAGED = b'"labels":{', b'"managedFields":[{'
_TRIES = 8
MOST_IN_STATUS = 5_000
"""The most values of a status; the schema allows fewer."""
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[{]|[\]}]', re.DOTALL)


def loads(text: bytes) -> Any:
    """Parse a text. Raise orjson.JSONDecodeError if the text is not JSON."""
    try:
        return orjson.loads(text) if len(text) < LONG else outline(text) or _parse(text)
    except orjson.JSONDecodeError as error:
        if "depth" not in str(error):
            raise
    return parse_without_gc(_truncate_depth(text))


def _parse(text: bytes) -> Any:
    brief = _without_managed_fields(text) if _OBJECT.match(text) else text
    try:
        return parse_without_gc(brief)
    except orjson.JSONDecodeError:
        if brief is text:
            raise
        return parse_without_gc(text)


def parse_without_gc(text: bytes) -> Any:
    """Parse a text with the garbage collector switched off.

    The new values are no garbage, and each collection walks through all new values. With lists nested in lists, that
    takes six times as long as the parsing.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return orjson.loads(text)
    finally:
        if was_enabled:
            gc.enable()


def outline(text: bytes) -> Any | None:
    """Return a TorchJob, or an event with a TorchJob, without its spec, if it has more than `MOST_VALUES` values.

    A template may have any number of values, since the API server keeps whatever a user writes there. The result is
    None for another kind, for a smaller object, and for a text in another order than the order of API servers: kind and
    metadata first, then the spec, the status last.

    The metadata and the status are found reliably: within metadata, no other object is followed by a spec, and only the
    closing braces of the object and of the event follow the status.
    """
    head = _HEAD.match(text)
    end = text.find(_SPEC, head.end()) if head and is_crowded(text) else -1
    if head is None or end < 0:
        return None
    text, event = text.rstrip(), bool(head["event"])
    try:
        head_text = _without_managed_fields(text[: end + len(_SPEC)])
        body = parse_without_gc(_without_labels(head_text[: -len(_SPEC) + 1]) + (b"}}" if event else b"}"))
    except orjson.JSONDecodeError:
        return None
    status = _status(text[:-1] if event else text)
    return {**body, "object": ObjectWithoutSpec(body["object"] | status)} if event else ObjectWithoutSpec(body | status)


def _without_labels(head: bytes) -> bytes:
    """Return a text that ends with metadata, without its first labels. A label's value cannot contain a brace."""
    start = head.find(_LABELS)
    end = head.find(b"}", start)
    return head if start < 0 or end < 0 else head[: start + len(_LABELS)] + head[end:]


def _without_managed_fields(text: bytes) -> bytes:
    """Return the text without `managedFields`, the longest part of an object's metadata, which torchq does not read.

    The value is a list of objects that contain no lists, so its closing bracket is the first closing bracket.
    """
    start, spec = text.find(_MANAGED), text.find(_SPEC)
    if not 0 < start < spec:
        return text
    ends = (text.find(b"}]" + after, start, spec + len(_SPEC)) for after in (b',"name":"', _SPEC))
    end = min((position for position in ends if position > 0), default=-1)
    return text if end < 0 else text[: start + len(_MANAGED) - 1] + text[end + 1 :]


def is_crowded(text: bytes) -> bool:
    """Return whether a text has more values than can be parsed in a few milliseconds."""
    if _separators(text) <= MOST_VALUES:
        return False
    return text.count(b'"') > MOST_VALUES or _separators(_STRING.sub(b"", text)) > MOST_VALUES


def _separators(text: bytes) -> int:
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def _status(text: bytes) -> dict[str, Any]:
    """Return the status of an object, under its key, if it is the last field; else an empty mapping."""
    start = len(text)
    for _ in range(_TRIES):
        start = text.rfind(_STATUS, 0, start)
        if start < 0 or _separators(text[start:]) > MOST_IN_STATUS:
            break
        try:
            status: dict[str, Any] = parse_without_gc(b"{" + text[start + 2 :])
        except orjson.JSONDecodeError:  # the match lies within another object, which the text does not close
            continue
        return status
    return {}


def _truncate_depth(text: bytes) -> bytes:
    """Return the text with null for all values below the deepest level."""
    parts: list[bytes] = []
    depth = position = 0
    for token in _TOKEN.finditer(text):
        match token.group()[:1]:
            case b"{" | b"[":
                depth += 1
                if depth == DEEPEST + 1:
                    parts += [text[position : token.start()], b"null"]
            case b"}" | b"]":
                if depth == DEEPEST + 1:
                    position = token.end()
                depth -= 1
    return b"".join([*parts, text[position:]])
