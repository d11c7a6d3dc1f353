"""OpenAPI documents of read-only APIs (https://spec.openapis.org/oas/v3.1.0).

One rule: what an API answers comes from its models, and every refusal is a Status.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import models_json_schema

from coordinator import release
from coordinator.http.openapi import queue_models

_REFERENCES = "#/components/schemas/{model}"


@dataclass(frozen=True, slots=True)
class Operation:
    """One path of the API."""

    path: str
    summary: str
    answer: Any
    """The model of the answer, or a union of models."""
    queries: tuple[tuple[str, str], ...] = ()
    """The parameters of the query, with their meanings."""

    @property
    def parameters(self) -> list[dict[str, Any]]:
        """The parameters of the path and of the query."""
        names = [part.strip("{}") for part in self.path.split("/") if part.startswith("{")]
        in_path = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}, "description": f"the {name}"}
            for name in names
        ]
        in_query = [
            {"name": name, "in": "query", "required": False, "schema": {"type": "string"}, "description": meaning}
            for name, meaning in self.queries
        ]
        return in_path + in_query


@dataclass(frozen=True)
class Description:
    """A read-only API."""

    title: str
    text: str
    """Who reaches it, and what it asks for."""
    operations: Sequence[Operation]
    errors: Mapping[str, str]
    """What a status code of a refusal means."""

    @cached_property
    def document(self) -> dict[str, Any]:
        """The OpenAPI document."""
        adapters = [(each.path, "serialization", TypeAdapter(each.answer)) for each in self.operations]
        answers, definitions = TypeAdapter.json_schemas(adapters, ref_template=_REFERENCES)  # type: ignore[arg-type]
        _, failures = models_json_schema([(queue_models.FailureStatus, "serialization")], ref_template=_REFERENCES)
        return {
            "openapi": "3.1.0",
            "info": {"title": self.title, "version": release.version() or "0", "description": self.text},
            "paths": {
                each.path: {"get": self._describe(each, answers[each.path, "serialization"])}
                for each in self.operations
            },
            "components": {"schemas": definitions.get("$defs", {}) | failures.get("$defs", {})},
        }

    def _describe(self, operation: Operation, answer: dict[str, Any]) -> dict[str, Any]:
        failure = {"$ref": _REFERENCES.format(model=queue_models.FailureStatus.__name__)}
        return {
            "summary": operation.summary,
            "parameters": operation.parameters,
            "responses": {
                "200": {"description": operation.summary, "content": {"application/json": {"schema": answer}}},
                **{
                    code: {"description": meaning, "content": {"application/json": {"schema": failure}}}
                    for code, meaning in self.errors.items()
                },
            },
        }
