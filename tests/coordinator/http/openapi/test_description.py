"""The OpenAPI documents of the read-only APIs."""

from typing import Any

import pytest
from pydantic import ValidationError

from coordinator.http import history_api, queue_api
from coordinator.http.openapi import queue_models
from tests.support.coordinator import described_answers

DOCUMENT = queue_api.API.document


def references(value: object) -> set[str]:
    match value:
        case {"$ref": str(name)}:
            return {name}
        case dict():
            return {found for each in value.values() for found in references(each)}
        case list():
            return {found for each in value for found in references(each)}
    return set()


@pytest.mark.parametrize("document", [DOCUMENT, history_api.API.document], ids=["coordinator", "recorder"])
def test_every_reference_leads_to_a_schema(document: dict[str, Any]) -> None:
    names = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert references(document) <= names
    assert document["openapi"] == "3.1.0"


def test_parameters_of_paths_and_queries_are_named() -> None:
    parameters = DOCUMENT["paths"]["/v1/jobs/{namespace}/{name}/why"]["get"]["parameters"]
    assert [(each["name"], each["in"]) for each in parameters] == [
        ("namespace", "path"), ("name", "path"), ("uid", "query"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "model"),
    [
        ("/v1/queues", queue_models.QueueItems),
        ("/v1/queues/a", queue_models.Queue),
        ("/v1/nowhere", None),
        ("/v1/jobs/a", None),
    ],
)
def test_a_path_has_the_model_of_its_answers(path: str, model: object) -> None:
    assert described_answers.answer_model(path) is model


def test_an_answer_with_a_field_that_is_not_described_is_noticed() -> None:
    findings = {"findings": [{"code": "a", "field": "b", "message": "c", "firm": True}]}
    described_answers.check("/v1/check?job=x", 200, findings)
    with pytest.raises(ValidationError, match="surprise"):
        described_answers.check("/v1/check", 200, findings | {"surprise": 1})
