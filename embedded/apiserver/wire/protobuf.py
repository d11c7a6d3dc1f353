"""Decodes bodies in Kubernetes' protobuf encoding. Newer versions of kubectl send protobuf for objects that they create
themselves (`create namespace`, `create configmap`, `drain`, `auth can-i`).

One rule: a body is converted to the equivalent JSON and then handled as JSON; no answer is in protobuf. A kind without
a table in `protobuf_messages` is refused.
"""

import base64
import struct
from collections.abc import Iterator
from typing import Any

from crds import timestamps
from embedded.apiserver.status_errors import bad_request, unsupported_media_type
from embedded.apiserver.wire import protobuf_messages as messages
from embedded.apiserver.wire.protobuf_messages import Field, Message, Type

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"
_DEEPEST = 32
_ENVELOPE: Message = {
    1: Field("type", {1: Field("apiVersion", "text"), 2: Field("kind", "text")}),
    2: Field("raw", "raw"),
}


class _MalformedBody(Exception):
    """The bytes are not valid protobuf."""


def read(body: bytes) -> dict[str, Any]:
    """Return the object in a body.

    Raise StatusError (BadRequest) if the body is malformed, and StatusError (415) if there is no table for the kind of
    the object.
    """
    if not body.startswith(_MAGIC):
        raise bad_request("the body does not begin with the bytes that mark protobuf")
    try:
        envelope = _message(body[len(_MAGIC) :], _ENVELOPE, 0)
        kind = envelope.get("type") or {}
        table = messages.KINDS.get(str(kind.get("kind", "")))
        if table is None:
            raise unsupported_media_type(["application/json", "application/yaml"])
        return {**kind, **_message(envelope.get("raw", b""), table, 0)}
    except (_MalformedBody, struct.error, UnicodeDecodeError, OverflowError, ValueError) as error:
        raise bad_request(f"the body could not be decoded: {error}") from None


def _message(raw: bytes, table: Message, depth: int) -> dict[str, Any]:
    if depth > _DEEPEST:
        raise _MalformedBody("it is nested too deeply")
    fields: dict[str, Any] = {}
    for number, value in _parts(raw):
        field = table.get(number)
        if field is None:
            continue
        read_value = _value(value, field.type, depth + 1)
        if field.form == "many":
            fields.setdefault(field.name, []).append(read_value)
        elif field.form == "map":
            pair = _message(
                _bytes(value), {1: Field("key", "text"), 2: Field("value", field.type, "pointer")}, depth + 1
            )
            fields.setdefault(field.name, {})[pair.get("key", "")] = pair.get(
                "value", "" if isinstance(field.type, str) else {}
            )
        elif field.form == "pointer" or read_value not in ("", 0, False, {}, None):
            fields[field.name] = read_value
    return fields


def _value(value: int | bytes, kind: Type, depth: int) -> Any:
    match kind:
        case "number":
            number = _number(value)
            return number - (1 << 64) if number >= 1 << 63 else number
        case "flag":
            return bool(_number(value))
        case "text":
            return _bytes(value).decode()
        case "raw":
            return _bytes(value)
        case "bytes":
            return base64.b64encode(_bytes(value)).decode()
        case "time":
            seconds = _message(_bytes(value), {1: Field("seconds", "number")}, depth).get("seconds")
            return timestamps.format_time(seconds) if seconds else None
        case "quantity":
            return _message(_bytes(value), {1: Field("text", "text")}, depth).get("text", "0")
        case "either":
            return _either(_bytes(value), depth)
        case dict():
            return _message(_bytes(value), kind, depth)
    raise _MalformedBody(f"there is no type {kind!r}")


def _either(raw: bytes, depth: int) -> Any:
    table = {1: Field("is_text", "number"), 2: Field("number", "number"), 3: Field("text", "text")}
    fields = _message(raw, table, depth)
    return fields.get("text", "") if fields.get("is_text") else fields.get("number", 0)


def _number(value: int | bytes) -> int:
    if isinstance(value, bytes):
        raise _MalformedBody("it has bytes in place of a number")
    return value


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise _MalformedBody("it has a number in place of bytes")
    return value


def _parts(raw: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of a message: number and value."""
    position = 0
    while position < len(raw):
        tag, position = _varint(raw, position)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, position = _varint(raw, position)
            yield number, value
        elif wire == 2:
            length, position = _varint(raw, position)
            if position + length > len(raw):
                raise _MalformedBody("it ends in the middle")
            yield number, raw[position : position + length]
            position += length
        elif wire in {1, 5}:
            position += 8 if wire == 1 else 4
        else:
            raise _MalformedBody(f"unknown wire type {wire}")


def _varint(raw: bytes, position: int) -> tuple[int, int]:
    result = 0
    for shift in range(0, 70, 7):
        if position >= len(raw):
            raise _MalformedBody("it ends in the middle")
        byte = raw[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return result & (1 << 64) - 1, position
    raise _MalformedBody("a number is too long")
