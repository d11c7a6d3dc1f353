"""Hostile answers to the client: an unreadable object does not hide other objects, and false pods of a job are
ignored.
"""

from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crds import labels
from crds.keys import JobKey
from crds.torchjob import size_limits
from kube import jsontext, streams
from queues.tasks import Task
from reconcilers.observe import Observer
from reconcilers.plan.plan import plan
from reconcilers.settings import ReconcileSettings
from reconcilers.values import Observation
from reconcilers.views import pod_view
from reconcilers.views.pod_view import PodView
from tests.fuzz.test_fuzz_manifests import NOW, job, refused, stored, task
from tests.support.crds import served
from tests.support.fuzz import strategies
from tests.support.reconcilers.simulation import merged

KEY = JobKey("team", "a", "0c5e8f0a-7a4e-4b0e-9d0a-3f3a54c1d001")


@given(strategies.ANY)
def test_json_is_read_unchanged(value: Any) -> None:
    assert jsontext.loads(orjson.dumps(value)) == orjson.loads(orjson.dumps(value))


@pytest.mark.parametrize("levels", [499, 600, 1100, 9000, 100_000])
def test_too_deep_value_is_cut_and_the_rest_is_read(levels: int) -> None:
    deep = b'{"a":[' * levels + b'"]}\\""' + b"]}" * levels
    found = jsontext.loads(b'{"items":[{"x":"}]"},' + deep + b',{"y":"\\\\"}],"z":1}')
    assert (found["items"][0], found["items"][2], found["z"]) == ({"x": "}]"}, {"y": "\\"}, 1)
    assert size_limits.count_values(found["items"][1], 10**6) < 0


@settings(deadline=None)
@given(st.binary(max_size=30) | st.text(st.sampled_from('{}[]",:\\a1'), max_size=30).map(str.encode))
def test_any_bytes_are_read_or_refused_as_json(text: bytes) -> None:
    try:
        jsontext.loads(text)
    except orjson.JSONDecodeError:
        return


def test_deep_object_does_not_end_a_watch() -> None:
    deep = b'{"type":"ADDED","object":{"metadata":{"name":"deep"},"spec":' + b"[" * 5000 + b"]" * 5000 + b"}}\n"
    good = b'{"type":"ADDED","object":{"metadata":{"name":"good"}}}\n'
    assert [event.object["metadata"]["name"] for event in streams.events([deep, good], "watch")] == ["deep", "good"]


def trimmed(namespace: str) -> PodView:
    """Return the trimmed view of a pod that claims to belong to the job."""
    marks = {labels.JOB_UID: KEY.uid, labels.JOB_NAME: "a", labels.ATTEMPT: "1"}
    own = {"namespace": namespace, "name": "a-a-0", "uid": f"pod-{namespace}", "labels": marks, "resourceVersion": "1"}
    own["ownerReferences"] = [{"controller": True, "uid": KEY.uid}]
    spec, status = {"containers": [{"name": "c"}]}, {"phase": "Running"}
    return pod_view.trim({"metadata": own, "spec": spec, "status": status})


class Cluster:
    """A cluster with one job."""

    def get(self, *_: Any) -> dict[str, Any]:
        return stored(job({"A": task()}))


class Cache:
    """A cache with pods of two namespaces that claim the same job uid."""

    synced = True

    def wait_for(self, *_: Any) -> bool:
        return True

    def indexed(self, _: str) -> list[PodView]:
        return [trimmed("team"), trimmed("thief")]


def test_pod_of_another_namespace_does_not_belong_to_the_job() -> None:
    cluster: Any = Cluster()
    asked = Task(key=KEY, token="t", tenant="team", seen=0, failures=0, reservation=None)
    seen = Observer(cluster, Cache(), ReconcileSettings()).observe(asked)
    assert [each.namespace for each in seen.pods] == ["team"]


@pytest.mark.parametrize(
    "status",
    [
        {"conditions": "x", "queue": 5, "phase": "Running"},
        {"phase": "Sleeping"},
        {"conditions": [{"type": "Succeeded", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
        {"admission": {"attempt": -1}},
    ],
    ids=str,
)
def test_invalid_job_with_a_strange_status_fails_once_with_a_reason(status: dict[str, Any]) -> None:
    manifest = stored(job({"A": task(container={"resources": {"requests": {"example.org/devices": "much"}}})}), status)
    [write] = decide(manifest)
    after = merged(manifest, write.change)
    assert after["status"]["phase"] == "Failed"
    assert served.refusals(after) == []
    assert not decide(after)


def decide(manifest: dict[str, Any]) -> tuple[Any, ...]:
    """Return the actions that a worker plans for an invalid job."""
    return plan(
        Observation(key=KEY, job=refused(manifest), pods=(), reservation=None), ReconcileSettings(), NOW
    ).actions
