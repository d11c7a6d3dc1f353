"""JSON as API servers send it.

One rule: one object that nobody can read must not hide the others that come with it: what is nested beyond all reason
is cut off, and reads as null. (A Kubernetes API server keeps 10,000 levels, the fastest reader takes 1,024.)
"""

import gc
import re
from typing import Any

import orjson

from crds.api_resources import TORCHJOBS
from crds.torchjob.size_limits import Outlined

DEEPEST = 500
"""Levels that are read; whoever takes an object asks for far fewer."""
LONG = 65_536
"""Bytes of a text that is read with care."""
MOST_VALUES = 60_000
"""Values of a TorchJob that is read as a whole."""
_HEAD = re.compile(
    rb'(?P<event>\{"type":"[A-Z]+","object":)?\{(?:"apiVersion":"[^"\\]*",)?"kind":"%s",'
    rb'(?:"apiVersion":"[^"\\]*",)?"metadata":\{' % TORCHJOBS.kind.encode()
)
_OBJECT = re.compile(rb'(?:\{"type":"[A-Z]+","object":)?\{(?:"(?:apiVersion|kind)":"[^"\\]*",)*"metadata":\{')
"""How an object begins, or an event with one; a list has other metadata."""
_SPEC, _STATUS = b'},"spec":{', b'},"status":{'
_LABELS, _MANAGED = b'"labels":{', b'"managedFields":[{'
_TRIES = 8
MOST_IN_STATUS = 5_000
"""Values of a status; the schema bounds it to fewer."""
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[{]|[\]}]', re.DOTALL)


def loads(text: bytes) -> Any:
    """Parse; orjson.JSONDecodeError for what is no JSON."""
    try:
        return orjson.loads(text) if len(text) < LONG else outline(text) or _read(text)
    except orjson.JSONDecodeError as error:
        if "depth" not in str(error):
            raise
    return _long(_cut(text))


def _read(text: bytes) -> Any:
    brief = _without_managed_fields(text) if _OBJECT.match(text) else text
    try:
        return _long(brief)
    except orjson.JSONDecodeError:
        if brief is text:
            raise
        return _long(text)


def _long(text: bytes) -> Any:
    """Without a look for garbage while it is read: none of it is, and each look walks through all that is there yet.
    That takes six times as long as the reading where lists are nested in lists."""
    looks = gc.isenabled()
    gc.disable()
    try:
        return orjson.loads(text)
    finally:
        if looks:
            gc.enable()


def outline(text: bytes) -> Any | None:
    """A TorchJob, or an event with one, without the spec, where it holds more values than any reader wants to know: the
    API server keeps in a template whatever a user writes. None if the text is another object, holds less, or is not
    written as API servers write it: kind and
    metadata first, then the spec, the status last.

    What is taken for metadata and status is that: within metadata no other object is followed by a spec, and what is
    left behind the status closes the object and the event, and nothing else.
    """
    head = _HEAD.match(text)
    end = text.find(_SPEC, head.end()) if head and is_crowded(text) else -1
    if head is None or end < 0:
        return None
    text, event = text.rstrip(), bool(head["event"])
    try:
        head_text = _without_managed_fields(text[: end + len(_SPEC)])
        found = _long(_without_labels(head_text[: -len(_SPEC) + 1]) + (b"}}" if event else b"}"))
    except orjson.JSONDecodeError:
        return None
    status = _status(text[:-1] if event else text)
    return {**found, "object": Outlined(found["object"] | status)} if event else Outlined(found | status)


def _without_labels(head: bytes) -> bytes:
    """A text that ends with metadata, without its first labels: they hold no brace, in whatever they say."""
    start = head.find(_LABELS)
    end = head.find(b"}", start)
    return head if start < 0 or end < 0 else head[: start + len(_LABELS)] + head[end:]


def _without_managed_fields(text: bytes) -> bytes:
    """The text without the longest thing in the metadata of an object that nobody reads: lists of the names of all its
    fields. They hold objects and no lists, so what ends them is not within them."""
    start, spec = text.find(_MANAGED), text.find(_SPEC)
    if not 0 < start < spec:
        return text
    ends = (text.find(b"}]" + after, start, spec + len(_SPEC)) for after in (b',"name":"', _SPEC))
    end = min((each for each in ends if each > 0), default=-1)
    return text if end < 0 else text[: start + len(_MANAGED) - 1] + text[end + 1 :]


def is_crowded(text: bytes) -> bool:
    """Whether a text has more values than take a few milliseconds to read."""
    if _separators(text) <= MOST_VALUES:
        return False
    return text.count(b'"') > MOST_VALUES or _separators(_STRING.sub(b"", text)) > MOST_VALUES


def _separators(text: bytes) -> int:
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def _status(text: bytes) -> dict[str, Any]:
    """The status of an object, with its name, if it comes last."""
    start = len(text)
    for _ in range(_TRIES):
        start = text.rfind(_STATUS, 0, start)
        if start < 0 or _separators(text[start:]) > MOST_IN_STATUS:
            break
        try:
            found: dict[str, Any] = _long(b"{" + text[start + 2 :])
        except orjson.JSONDecodeError:  # within another object, which is not closed by this
            continue
        return found
    return {}


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
