"""Conversion of the models to structural schemas, the dialect of OpenAPI v3 in a CustomResourceDefinition.

One rule: no constraint is written twice; the API server enforces the constraints that the model of a field declares.

In a structural schema every node has one type. There are no references, no alternatives, and no `properties` beside
`additionalProperties`. So references are replaced by the nodes that they refer to. A field that may be None is not
required. A constant becomes an enum with one value, and a constraint on the keys of a map becomes a CEL rule.
"""

import ast
import inspect
import textwrap
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core.core_schema import ModelSchema

from crds import excerpts

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
    """Return the structural schema of a model; with `defaults`, the API server fills in missing fields."""
    source = model.model_json_schema(by_alias=True, schema_generator=_Documented)
    return _node(source, source.get("$defs", {}), defaults)


class _Documented(GenerateJsonSchema):
    """A generator that describes a field by its docstring, for `kubectl explain`.

    Pydantic would read the sources of all models when they are imported, which was a third of the time of it.
    """

    def model_schema(self, schema: ModelSchema) -> JsonSchemaValue:
        """Return the schema of a model."""
        found, fields = super().model_schema(schema), schema["cls"].model_fields
        for name, text in _field_docstrings(schema["cls"]).items():
            found["properties"][fields[name].alias or name].setdefault("description", text)
        return found


def _field_docstrings(model: type[BaseModel]) -> dict[str, str]:
    """Return the docstrings that follow the fields of a model, by the names of the fields."""
    found: dict[str, str] = {}
    for part in reversed(model.__mro__[: model.__mro__.index(BaseModel)]):
        (node,) = ast.parse(textwrap.dedent(inspect.getsource(part))).body
        assert isinstance(node, ast.ClassDef)
        for field, text in pairwise(node.body):
            match field, text:
                case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(words))) if (
                    name in model.model_fields
                ):
                    found[name] = inspect.cleandoc(words)
    return found


def below(node: Schema, path: str) -> Schema:
    """Return the node at a path: `*` is the node of a map's values or of a list's items."""
    for step in filter(None, path.split(".")):
        node = (node.get("additionalProperties") or node["items"]) if step == "*" else node["properties"][step]
    return node


def _node(source: Mapping[str, Any], definitions: Mapping[str, Any], defaults: bool) -> Schema:
    source = _plain(source, definitions)
    node = {name: source[name] for name in _KEPT if name in source}
    node |= {name: value for name, value in source.items() if name.startswith("x-kubernetes-")}
    if "description" in node:
        node["description"] = excerpts.one_line(node["description"])
    if defaults and source.get("default") not in (None, [], ""):
        # The default of an object is empty, because its fields have their own defaults.
        node["default"] = {} if isinstance(source["default"], dict) else source["default"]
    if "properties" in source:
        node["properties"] = {name: _node(child, definitions, defaults) for name, child in source["properties"].items()}
    if "items" in source:
        node["items"] = _node(source["items"], definitions, defaults)
    return node | _map(source, definitions, defaults)


def _plain(source: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema without reference, null branch or constant; keywords beside a reference override its target."""
    resolved = dict(source)
    if "$ref" in resolved:
        name = resolved.pop("$ref").rsplit("/", 1)[1]
        resolved = _plain(definitions[name], definitions) | resolved
    if "anyOf" in resolved:
        (branch,) = (branch_schema for branch_schema in resolved.pop("anyOf") if branch_schema.get("type") != "null")
        resolved = _plain(branch, definitions) | resolved
    if "const" in resolved:
        resolved["enum"] = [resolved.pop("const")]
    return resolved


def _map(source: Mapping[str, Any], definitions: Mapping[str, Any], defaults: bool) -> Schema:
    """Return the schema of a map's values, and the pattern of its keys as a rule."""
    patterns = source.get("patternProperties")
    if patterns:
        ((pattern, value),) = patterns.items()
        rule = {"rule": f"self.all(key, key.matches('{pattern}'))", "message": f"every key must match {pattern}"}
        return {"additionalProperties": _node(value, definitions, defaults), "x-kubernetes-validations": [rule]}
    value = source.get("additionalProperties")
    return {"additionalProperties": _node(value, definitions, defaults)} if isinstance(value, Mapping) else {}
