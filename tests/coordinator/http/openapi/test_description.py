"""The OpenAPI document of the read-only API."""

import re

import pytest
from pydantic import ValidationError

from coordinator.http import queue_api
from coordinator.http.openapi import description, models
from tests.support.coordinator import described_answers

DOCUMENT = description.document()


def references(value: object) -> set[str]:
    match value:
        case {"$ref": str(name)}:
            return {name}
        case dict():
            return {found for each in value.values() for found in references(each)}
        case list():
            return {found for each in value for found in references(each)}
    return set()


def test_every_reference_leads_to_a_schema() -> None:
    names = {f"#/components/schemas/{name}" for name in DOCUMENT["components"]["schemas"]}
    assert references(DOCUMENT) <= names
    assert DOCUMENT["openapi"] == "3.1.0"


def test_every_path_of_the_api_is_described() -> None:
    told = set(re.findall(r"^    /v1(/[^\s?]+)", queue_api.__doc__ or "", re.MULTILINE))
    described = {
        re.sub(r"\{(\w+)\}", lambda name: name[1].upper(), path).removeprefix("/v1") for path in DOCUMENT["paths"]
    }
    assert described == told


def test_parameters_of_paths_and_queries_are_named() -> None:
    parameters = DOCUMENT["paths"]["/v1/jobs/{namespace}/{name}/why"]["get"]["parameters"]
    assert [(each["name"], each["in"]) for each in parameters] == [
        ("namespace", "path"), ("name", "path"), ("uid", "query"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "model"),
    [("/v1/queues", models.QueueItems), ("/v1/queues/a", models.Queue), ("/v1/nowhere", None), ("/v1/jobs/a", None)],
)
def test_a_path_has_the_model_of_its_answers(path: str, model: object) -> None:
    assert described_answers.answer_model(path) is model


def test_an_answer_with_a_field_that_is_not_described_is_noticed() -> None:
    findings = {"findings": [{"code": "a", "field": "b", "message": "c", "firm": True}]}
    described_answers.check("/v1/check?job=x", 200, findings)
    with pytest.raises(ValidationError, match="surprise"):
        described_answers.check("/v1/check", 200, findings | {"surprise": 1})
