"""ScaleOut and ScaleIn: what the schema refuses, what the schema leaves for a worker to judge, and the fields that
never change.
"""

from typing import Any

import pytest

from crds import scale_request
from crds.errors import InvalidObject
from tests.support.crds import served


def scale_out(**spec: Any) -> dict[str, Any]:
    found = scale_request.manifest("ScaleOut", "train", **({"toAdd": {"count": 2}} | spec))
    return found | {"metadata": {"name": "more"}}


def scale_in(**spec: Any) -> dict[str, Any]:
    found = scale_request.manifest("ScaleIn", "train", **({"toDelete": {"count": 1}} | spec))
    return found | {"metadata": {"name": "less"}}


STORED = [
    scale_out(),
    scale_out(toAdd={}),
    scale_out(toAdd={"count": 0}),
    scale_out(toAdd={"count": -1}),
    scale_in(toDelete={}),
    scale_in(toDelete={"count": -(2**31)}),
    scale_in(toDelete={"podNames": []}),
    scale_in(toDelete={"podNames": ["a", "a"]}),
    scale_in(toDelete={"count": 1, "podNames": ["a"]}),
    scale_in(selector={"name": "no-such-job"}),
]
REFUSED = [
    (scale_out(selector={}), "spec.selector.name: Required value"),
    (scale_out(selector={"name": "a/b"}), "spec.selector.name: Invalid value"),
    (scale_out(selector={"name": ""}), "spec.selector.name: Invalid value"),
    (scale_out(taskType="Master"), "spec.taskType: Unsupported value"),
    (scale_out(toAdd={"count": "2"}), "spec.toAdd.count: Invalid value"),
    (scale_out(toAdd={"count": 2**31}), "spec.toAdd.count: Invalid value"),
    (scale_out(timeoutSeconds=0), "spec.timeoutSeconds: Invalid value"),
    (scale_out(ttlSecondsAfterFinished=-1), "spec.ttlSecondsAfterFinished: Invalid value"),
    (scale_out(toDelete={"count": 1}), 'unknown field "spec.toDelete"'),
    (scale_in(toDelete={"podNames": ["a" * 254]}), "spec.toDelete.podNames[0]: Too long"),
    (scale_in(toDelete={"podNames": ["a"] * 1001}), "spec.toDelete.podNames: Too many"),
]


@pytest.mark.parametrize("manifest", STORED, ids=str)
def test_request_that_a_job_may_refuse_is_stored_and_read(manifest: dict[str, Any]) -> None:
    assert served.refusals(manifest) == []
    assert scale_request.parse(manifest).kind == manifest["kind"]


@pytest.mark.parametrize(("manifest", "problem"), REFUSED, ids=[problem for _, problem in REFUSED])
def test_request_that_fits_no_job_is_refused_by_schema_and_model(manifest: dict[str, Any], problem: str) -> None:
    assert any(found.startswith(problem) for found in served.refusals(manifest)), served.refusals(manifest)
    with pytest.raises(InvalidObject):
        scale_request.parse(manifest)


def test_missing_fields_have_defaults() -> None:
    spec = scale_request.parse(scale_in()).spec
    assert (spec.task_type, spec.timeout_seconds, spec.ttl_seconds_after_finished) == ("Worker", 600, 600)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (scale_out(), scale_out(toAdd={"count": 3})),
        (scale_out(), scale_out(timeoutSeconds=5)),
        (scale_in(), scale_in(selector={"name": "other"})),
    ],
)
def test_spec_never_changes(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert served.refusals(after, before) == [f"spec: Invalid value: {scale_request.UNCHANGEABLE}"]


def test_status_keeps_the_word_from() -> None:
    status = scale_request.ScaleStatus(phase="Admitted", from_workers=2, to=4)
    assert status.manifest()["from"] == 2
    read = scale_request.parse(scale_out() | {"status": status.manifest()})
    assert read.status.from_workers == 2
