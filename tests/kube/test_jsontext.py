"""Long JSON texts are read whole, without managed fields, or as an outline. The parts that are read equal the text."""

from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.cache import views
from crds.torchjob.size_limits import LargeObject, ObjectWithoutSpec
from kube import jsontext, streams

LEAF = st.sampled_from(["", "x", '},"spec":{', '"status":{', "}}", '"labels":{', "\\", 'é"', 7, None])
NAMES = st.sampled_from(["spec", "status", "labels", "metadata", "managedFields", "a", '},"spec":{', '"'])
ANY = st.recursive(
    LEAF, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4), max_leaves=12
)
LABELS = st.dictionaries(st.sampled_from(["labels", "spec", "a", "status", "name"]), st.sampled_from(["", "x-1"]))
ANNOTATIONS = st.dictionaries(NAMES, st.sampled_from(["", '},"spec":{', '"labels":{"', '}],"name":"', "\\"]))
FIELDS = st.dictionaries(st.sampled_from(["f:spec", "f:labels", 'k:{"name":"x"}', "."]), st.just({"f:name": {}}))
CROWD = [0] * (jsontext.MOST_VALUES + 1)


@st.composite
def jobs(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a TorchJob as API servers write it, with more values than are read."""
    managed = draw(st.lists(st.fixed_dictionaries({"fieldsV1": FIELDS, "manager": st.just("m")}), max_size=2))
    metadata = {
        "annotations": draw(ANNOTATIONS),
        "labels": draw(LABELS),
        **({"managedFields": managed} if managed else {}),
        "name": "train",
        "namespace": "team",
        "uid": "u1",
    }
    spec = {"before": draw(ANY), "crowd": CROWD, "after": draw(ANY)}
    found = {"apiVersion": "v1", "kind": "TorchJob", "metadata": metadata, "spec": spec}
    status = draw(st.none() | st.dictionaries(NAMES, ANY, max_size=3))
    return found if status is None else {**found, "status": status}


@settings(max_examples=150, deadline=None)
@given(job=jobs(), event=st.booleans(), end=st.sampled_from([b"", b"\n"]))
def test_outline_of_a_large_job_keeps_metadata_and_status(job: dict[str, Any], event: bool, end: bytes) -> None:
    text = orjson.dumps({"type": "MODIFIED", "object": job} if event else job) + end
    found = jsontext.loads(text)
    if event:
        assert found.keys() == {"type", "object"}
        found = found["object"]
    assert isinstance(found, ObjectWithoutSpec)
    metadata = {name: value for name, value in job["metadata"].items() if name != "managedFields"}
    brief = {name: value for name, value in found["metadata"].items() if name != "managedFields"}
    assert brief == metadata | {"labels": {}}
    assert found.get("status") == job.get("status")


@settings(max_examples=100, deadline=None)
@given(job=jobs())
def test_long_object_is_read_without_its_managed_fields(job: dict[str, Any]) -> None:
    job = job | {"kind": "Other", "spec": {**job["spec"], "crowd": ["x" * jsontext.LONG]}}
    found = jsontext.loads(orjson.dumps(job))
    kept = {name: value for name, value in job["metadata"].items() if name != "managedFields"}
    assert {name: value for name, value in found["metadata"].items() if name != "managedFields"} == kept
    assert {name: value for name, value in found.items() if name != "metadata"} == {
        name: value for name, value in job.items() if name != "metadata"
    }


@pytest.mark.parametrize("inner", ["[1,2],{}," * 40_000, "\\n,[" * 40_000])
def test_brackets_in_a_string_do_not_count_as_values(inner: str) -> None:
    spec = {"torchTaskSpecs": {"Master": {"template": {"spec": {"containers": [{"name": "c", "args": [inner]}]}}}}}
    job = {"apiVersion": "v1", "kind": "TorchJob", "metadata": {"name": "train"}, "spec": spec}
    assert jsontext.loads(orjson.dumps(job)) == job


@pytest.mark.parametrize("levels", [300, 1_100, 300_000])
def test_too_deeply_nested_job_is_shown_as_invalid(levels: int) -> None:
    crowd = b"[" * levels + b"]" * levels
    crowd = b",".join([crowd] * max(1, 100_000 // levels))
    line = (
        b'{"type":"ADDED","object":{"apiVersion":"train.distributed.io/v1alpha1","kind":"TorchJob","metadata":{'
        b'"creationTimestamp":"2026-01-01T00:00:00Z","name":"train","namespace":"team","uid":"u1"},"spec":{"x":['
        + crowd
        + b']},"status":{"phase":"Failed"}}}\n'
    )
    (event,) = streams.events([line], "watch")
    view = views.job_view(event.object)
    assert (view.key.name, view.invalid, view.finished) == ("train", True, True)


def test_object_of_a_long_event_is_marked_as_long() -> None:
    line = orjson.dumps({"type": "ADDED", "object": {"metadata": {"name": "x" * jsontext.LONG}}}) + b"\n"
    (event,) = streams.events([line], "watch")
    assert isinstance(event.object, LargeObject)
