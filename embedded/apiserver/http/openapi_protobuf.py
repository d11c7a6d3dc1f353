"""The OpenAPI 2 document in protobuf, the only form in which kubectl requests it.

One rule: the source is the OpenAPI 2 document in JSON. The result has the definitions that kubectl uses for
validation, but no operations, which kubectl reads in OpenAPI 3.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import orjson

MEDIA_TYPE = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
ANSWERED = MEDIA_TYPE.replace("@", ".")
"""The media type of an answer, in a spelling that Go's parser accepts."""
_SWAGGER, _INFO, _PATHS, _DEFINITIONS = 1, 2, 8, 9
_REF, _FORMAT, _DESCRIPTION, _REQUIRED, _ADDITIONAL, _TYPE, _ITEMS, _PROPERTIES, _EXTENSION = (
    1, 2, 4, 19, 21, 22, 23, 25, 31,
)  # fmt: skip
"""The numbers of a schema's fields."""


def document(second: Mapping[str, Any]) -> bytes:
    """Return the bytes of an OpenAPI 2 document."""
    info = second["info"]
    return b"".join([
        _field(_SWAGGER, second["swagger"]),
        _field(_INFO, _field(1, info["title"]) + _field(2, info["version"])),
        _field(_PATHS, b""),
        _field(_DEFINITIONS, _definitions(second["definitions"])),
    ])  # fmt: skip


def _definitions(schemas: Mapping[str, Any]) -> bytes:
    return b"".join(_field(1, _field(1, name) + _field(2, _schema(schema))) for name, schema in schemas.items())


def _schema(schema: Mapping[str, Any]) -> bytes:
    return b"".join(_parts(schema))


def _parts(schema: Mapping[str, Any]) -> Iterable[bytes]:
    for number, key in ((_REF, "$ref"), (_FORMAT, "format"), (_DESCRIPTION, "description")):
        if schema.get(key):
            yield _field(number, schema[key])
    yield from (_field(_REQUIRED, name) for name in schema.get("required") or ())
    additional = schema.get("additionalProperties")
    if isinstance(additional, Mapping):
        yield _field(_ADDITIONAL, _field(1, _schema(additional)))
    if schema.get("type"):
        yield _field(_TYPE, _field(1, schema["type"]))
    if schema.get("items"):
        yield _field(_ITEMS, _field(1, _schema(schema["items"])))
    # kubectl refuses a field that the properties lack, unless there are no properties.
    if schema.get("properties") and not schema.get("x-kubernetes-preserve-unknown-fields"):
        yield _field(_PROPERTIES, _definitions(schema["properties"]))
    for key, value in schema.items():
        if key.startswith("x-kubernetes-"):
            # The value is YAML, and JSON is YAML.
            yield _field(_EXTENSION, _field(1, key) + _field(2, _field(2, orjson.dumps(value))))


def _field(number: int, content: str | bytes) -> bytes:
    raw = content.encode() if isinstance(content, str) else content
    return _varint(number << 3 | 2) + _varint(len(raw)) + raw


def _varint(number: int) -> bytes:
    octets = bytearray()
    while number > 0x7F:
        octets.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*octets, number])
