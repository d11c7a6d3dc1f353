"""From the models to a structural schema, the dialect of OpenAPI v3 that a CustomResourceDefinition takes.

One rule: nothing is written by hand twice; what a model says of a field is what the API server enforces.

Structural means: every node has one type; there are no references, no alternatives, no `properties` beside
`additionalProperties`. So references are put in place, a field that may be None is simply not required, a constant is
an enum of one, and what bounds the keys of a map becomes a CEL rule on it.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

Schema = dict[str, Any]

_KEPT = (
    "type",
    "format",
    "description",
    "enum",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "pattern",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "required",
    "nullable",
)


def schema(model: type[BaseModel], *, defaults: bool) -> Schema:
    """The structural schema of a model. With `defaults`, what is not written is filled in by the API server."""
    source = model.model_json_schema(by_alias=True)
    return _node(source, source.get("$defs", {}), defaults)


def below(node: Schema, path: str) -> Schema:
    """The node that a path names: `spec.torchTaskSpecs.*` is the value of that map."""
    for step in filter(None, path.split(".")):
        node = node["additionalProperties"] if step == "*" else node["properties"][step]
    return node


def _node(source: Mapping[str, Any], definitions: Mapping[str, Any], defaults: bool) -> Schema:
    source = _plain(source, definitions)
    node = {name: source[name] for name in _KEPT if name in source}
    node |= {name: value for name, value in source.items() if name.startswith("x-kubernetes-")}
    if defaults and source.get("default") not in (None, [], ""):
        # An object's default is empty: its fields have defaults of their own.
        node["default"] = {} if isinstance(source["default"], dict) else source["default"]
    if "properties" in source:
        node["properties"] = {name: _node(each, definitions, defaults) for name, each in source["properties"].items()}
    if "items" in source:
        node["items"] = _node(source["items"], definitions, defaults)
    return node | _map(source, definitions, defaults)


def _plain(source: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """One schema without reference, null branch or constant; what is said beside a reference wins."""
    found = dict(source)
    if "$ref" in found:
        name = found.pop("$ref").rsplit("/", 1)[1]
        found = _plain(definitions[name], definitions) | found
    if "anyOf" in found:
        (branch,) = (each for each in found.pop("anyOf") if each.get("type") != "null")
        found = _plain(branch, definitions) | found
    if "const" in found:
        found["enum"] = [found.pop("const")]
    return found


def _map(source: Mapping[str, Any], definitions: Mapping[str, Any], defaults: bool) -> Schema:
    """The values of a map, and the pattern of its keys as a rule."""
    patterns = source.get("patternProperties")
    if patterns:
        ((pattern, value),) = patterns.items()
        rule = {"rule": f"self.all(key, key.matches('{pattern}'))", "message": f"every key must match {pattern}"}
        return {"additionalProperties": _node(value, definitions, defaults), "x-kubernetes-validations": [rule]}
    value = source.get("additionalProperties")
    return {"additionalProperties": _node(value, definitions, defaults)} if isinstance(value, Mapping) else {}
