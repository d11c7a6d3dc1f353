"""Models whose files would end with the pods of their job."""

from typing import Any

import pytest

from coordinator.runs import obstacles
from tests.support.coordinator.desk import manifest

MODEL: dict[str, Any] = {"modelOutput": {"modelName": "digits"}}


@pytest.mark.parametrize(
    ("spec", "embedded", "fields"),
    [
        (MODEL, False, ["spec.modelOutput"]),
        (MODEL, True, []),
        (MODEL | {"outputs": {"claimName": "models"}}, False, []),
        ({}, False, []),
    ],
)
def test_a_model_without_a_place_is_warned_of_on_kubernetes(
    spec: dict[str, Any], embedded: bool, fields: list[str]
) -> None:
    body = manifest("train", "a")
    body["spec"] |= spec
    found = list(obstacles.of_model(body, embedded=embedded))
    assert [(each.field, each.firm) for each in found] == [(field, False) for field in fields]
