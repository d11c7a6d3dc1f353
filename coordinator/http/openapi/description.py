"""The OpenAPI document of the read-only API (https://spec.openapis.org/oas/v3.1.0).

One rule: paths are listed here once; everything else comes from the models.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import models_json_schema

from coordinator import release
from coordinator.access.readers import AUDIENCE, HEADER
from coordinator.http.openapi import models, process_models

_REFERENCES = "#/components/schemas/{model}"
_ERRORS = {
    "400": "the query is wrong; the message says how",
    "401": "the API server does not accept the token, or the port is on loopback and the request has none",
    "403": "the token is of no account that may list the TorchJobs of this namespace",
    "404": "there is no such object",
    "503": "Redis or the caches of this coordinator do not answer",
}


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


_UID = ("uid", "ask for the job of that uid only")
OPERATIONS = (
    Operation("/v1/queues", "All queues with their settings and figures", models.QueueItems),
    Operation("/v1/queues/{name}", "One queue", models.Queue),
    Operation(
        "/v1/places", "The places of the first waiting jobs of some queues", models.PlaceItems,
        (("queues", "names of queues, separated by commas"),),
    ),
    Operation("/v1/jobs/{namespace}/{name}/why", "Where a job stands, and why it waits", models.JobState, (_UID,)),
    Operation("/v1/jobs/{namespace}/{name}/report", "What the pods of a job report", models.JobReport, (_UID,)),
    Operation(
        "/v1/check", "Whether a job could ever run", models.Findings, (("job", "the demands of the job as JSON"),)
    ),
    Operation(
        "/v1/next", "The next picks", models.ForecastPicks,
        (("n", "how many"), ("roomy", "1: as if the pool had room for everything")),
    ),
    Operation("/v1/pool", "The nodes by shape, with what is free on them", models.PoolNodes),
    Operation("/v1/scale/plan", "The plan of resizes of elastic jobs", models.ScalePlan),
    Operation("/v1/status", "The health of the installation", process_models.SystemStatus),
    Operation("/v1/settings", "The settings of this coordinator", process_models.SettingsInUse),
    Operation("/v1/openapi.json", "This document", dict[str, Any]),
)  # fmt: skip


@cache
def document() -> dict[str, Any]:
    """Return the OpenAPI document."""
    adapters = [(operation.path, "serialization", TypeAdapter(operation.answer)) for operation in OPERATIONS]
    answers, definitions = TypeAdapter.json_schemas(adapters, ref_template=_REFERENCES)  # type: ignore[arg-type]
    _, failures = models_json_schema([(models.FailureStatus, "serialization")], ref_template=_REFERENCES)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "torchq: read-only API of the coordinators",
            "version": release.version() or "0",
            "description": "Users reach it through the API server's proxy of the coordinators' Service. They send the "
            f"token of an account, for the audience {AUDIENCE}, in the header {HEADER}: answers name the jobs that the "
            "account may list. Without a token they name none.",
        },
        "paths": {
            operation.path: {"get": _describe(operation, answers[operation.path, "serialization"])}
            for operation in OPERATIONS
        },
        "components": {"schemas": definitions.get("$defs", {}) | failures.get("$defs", {})},
    }


def _describe(operation: Operation, answer: dict[str, Any]) -> dict[str, Any]:
    failure = {"$ref": _REFERENCES.format(model=models.FailureStatus.__name__)}
    return {
        "summary": operation.summary,
        "parameters": operation.parameters,
        "responses": {
            "200": {"description": operation.summary, "content": {"application/json": {"schema": answer}}},
            **{
                code: {"description": meaning, "content": {"application/json": {"schema": failure}}}
                for code, meaning in _ERRORS.items()
            },
        },
    }
