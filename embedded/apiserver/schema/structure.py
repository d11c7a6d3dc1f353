"""The check that a CRD's schema is structural, as a Kubernetes API server requires.

One rule: every problem has its path in the CRD, so that the author of the schema finds the line.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from embedded.apiserver import status_errors
from embedded.apiserver.schema.schema import python_pattern
from embedded.apiserver.status_errors import Cause

_TYPES = {"object", "array", "string", "integer", "number", "boolean"}


def _key_set(text: str) -> frozenset[str]:
    return frozenset(text.split())


_VALUE_KEYS = _key_set(
    "enum minimum maximum exclusiveMinimum exclusiveMaximum multipleOf pattern format minLength maxLength minItems "
    "maxItems minProperties maxProperties required allOf anyOf oneOf not properties items"
)
_DESCRIBING_KEYS = _key_set(
    "type description title default example nullable additionalProperties externalDocs uniqueItems "
    "x-kubernetes-preserve-unknown-fields x-kubernetes-int-or-string x-kubernetes-embedded-resource "
    "x-kubernetes-list-type x-kubernetes-list-map-keys x-kubernetes-map-type x-kubernetes-validations"
)
_JUNCTIONS = ("allOf", "anyOf", "oneOf")


def problems(schema: Any, path: str) -> Iterator[Cause]:
    """Yield the problems of the schema of a whole object."""
    if not isinstance(schema, dict):
        yield status_errors.required(path, "schemas are required")
        return
    if schema.get("type") != "object":
        yield status_errors.invalid_value(f"{path}.type", schema.get("type"), "must be object at the root")
    yield from _problems(schema, path)


def _problems(schema: Mapping[str, Any], path: str) -> Iterator[Cause]:
    if not isinstance(schema, Mapping):
        name = "Go struct field JSONSchemaProps of type v1.JSONSchemaProps"
        raise status_errors.bad_request(f"CustomResourceDefinition in version \"v1\" cannot be handled as a "
                                   f"CustomResourceDefinition: json: cannot unmarshal {path} into {name}")  # fmt: skip
    unknown = schema.keys() - _VALUE_KEYS - _DESCRIBING_KEYS
    for key in sorted(unknown):
        yield status_errors.not_allowed(f"{path}.{key}", "is not part of a structural schema")
    yield from _type_problems(schema, path)
    yield from _keyword_problems(schema, path)
    for key in _JUNCTIONS:
        for index, part in enumerate(schema.get(key) or ()):
            yield from _junction_problems(part, f"{path}.{key}[{index}]", schema)
    if schema.get("not"):
        yield from _junction_problems(schema["not"], f"{path}.not", schema)
    for step, child in _children(schema):
        yield from _problems(child, path + step)


def _type_problems(schema: Mapping[str, Any], path: str) -> Iterator[Cause]:
    schema_type = schema.get("type")
    untyped = schema.get("x-kubernetes-int-or-string") or schema.get("x-kubernetes-preserve-unknown-fields")
    if schema_type is None and not untyped:
        yield status_errors.required(f"{path}.type", "must not be empty for specified object fields")
    elif schema_type is not None and schema_type not in _TYPES:
        yield status_errors.not_supported(f"{path}.type", schema_type, sorted(_TYPES))
    if schema_type == "array" and not isinstance(schema.get("items"), dict):
        yield status_errors.required(f"{path}.items", "must be specified")


def _keyword_problems(schema: Mapping[str, Any], path: str) -> Iterator[Cause]:
    if schema.get("properties") and schema.get("additionalProperties"):
        detail = "additionalProperties and properties are mutual exclusive"
        yield status_errors.not_allowed(f"{path}.additionalProperties", detail)
    if schema.get("uniqueItems"):
        yield status_errors.not_allowed(f"{path}.uniqueItems", "uniqueItems cannot be set to true")
    for key in ("exclusiveMinimum", "exclusiveMaximum"):
        if not isinstance(schema.get(key, False), bool):
            yield status_errors.invalid_value(f"{path}.{key}", schema[key], "must be a boolean")
    if "pattern" in schema:
        try:
            re.compile(python_pattern(schema["pattern"]))
        except (re.error, TypeError) as error:
            yield status_errors.invalid_value(
                f"{path}.pattern", schema["pattern"], f"must be a valid regular expression: {error}"
            )


def _junction_problems(part: Any, path: str, schema: Mapping[str, Any]) -> Iterator[Cause]:
    if not isinstance(part, dict):
        yield status_errors.invalid_value(path, part, "must be a schema")
        return
    # The only exception: int-or-string may have `anyOf: [integer, string]` for clients that do not know int-or-string.
    describing = part.keys() & _DESCRIBING_KEYS - ({"type"} if schema.get("x-kubernetes-int-or-string") else set())
    for key in sorted(describing):
        yield status_errors.not_allowed(f"{path}.{key}", "must be empty to be structural")
    for step, child in _children(part):
        yield from _junction_problems(child, path + step, {})


def _children(schema: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    properties = schema.get("properties") or {}
    if not isinstance(properties, Mapping):
        raise status_errors.bad_request("json: cannot unmarshal properties into a map of v1.JSONSchemaProps")
    for name, child in properties.items():
        yield f".properties[{name}]", child
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield f".{key}", schema[key]
