"""The pod groups of a job that a worker observes."""

from dataclasses import replace
from typing import Any

import pytest

from crds import labels, timestamps
from crds.api_resources import EVENTS, GANG_QUEUES, TORCHJOBS, Resource
from gang import backends
from gang.values import GroupView
from kube.api import Listing, Manifest
from reconcilers.views.pod_group_view import GroupReader
from tests.faults.api import Api, ApiClient
from tests.support.reconcilers.builders import KEY

WORDS = "queue quota insufficient: insufficient gpu"
VOLCANO = backends.get_backend("volcano")


class Behind:
    """A cache that has received no object yet."""

    served = (VOLCANO.resource,)

    def indexed(self, key: str) -> list[GroupView]:  # noqa: ARG002
        return []


def test_reader_finds_groups_of_finished_job_despite_outdated_cache() -> None:
    cluster = ApiClient(Api(lambda: 0.0))
    assert VOLCANO.resource is not None
    kind = {"apiVersion": VOLCANO.resource.api_version, "kind": VOLCANO.resource.kind}
    marks, owner = (
        {labels.JOB_UID: KEY.uid},
        {"apiVersion": TORCHJOBS.api_version, "kind": "TorchJob", "name": "digits", "uid": KEY.uid},
    )
    for namespace, name, own in (
        ("default", "digits-0", [owner | {"controller": True}]),
        ("default", "somebodys", [owner]),
        ("default", "nobodys", []),
        ("kube-system", "digits-0", [owner | {"controller": True}]),
    ):
        metadata = {"name": name, "labels": marks, "ownerReferences": own}
        cluster.create(VOLCANO.resource, {**kind, "metadata": metadata}, namespace)
    sight, key = GroupReader(cluster, Behind()), replace(KEY, namespace="default")
    assert sight.of(key, "volcano") == ()
    assert [(each.namespace, each.name) for each in sight.of(key, "volcano", over=True)] == [("default", "digits-0")]


@pytest.mark.parametrize(("later", "asked"), [(0.0, 1), (4.9, 1), (5.0, 2), (-100.0, 2)])
def test_reader_caches_state_of_closed_queue(later: float, asked: int) -> None:
    now, questions = [100.0], []

    class Counting(ApiClient):
        def get(self, resource: Resource, name: str, namespace: str = "") -> Manifest:  # noqa: ARG002
            questions.append(name)
            assert resource == GANG_QUEUES
            return {"status": {"state": "Closed"}}

    group = VOLCANO.trim({"metadata": {"namespace": KEY.namespace, "name": "digits-0", "uid": "g"}})
    group = replace(group, job_uid=KEY.uid)

    class Cache(Behind):
        def indexed(self, key: str) -> list[GroupView]:  # noqa: ARG002
            return [group, replace(group, name="digits-1", uid="h")]

    sight = GroupReader(Counting(Api(lambda: 0.0)), Cache(), lambda: now[0])
    for _ in range(2):
        assert {each.reason for each in sight.of(KEY, "volcano")} == {"GangQueueClosed"}
        now[0] += later
    assert len(questions) == asked


@pytest.mark.parametrize(
    ("status", "age", "message"),
    [
        ({}, 4.0, "Volcano has not let the group in yet"),
        ({}, 5.0, "no scheduler has seen the group: check that Volcano's scheduler runs (schedulerName volcano)"),
        ({"phase": "Pending"}, 4.0, "Volcano has not let the group in yet"),
        ({"phase": "Pending"}, 5.0, "Volcano has not let the group in yet: queue quota insufficient: insufficient gpu"),
    ],
)
def test_reader_says_why_a_waiting_group_is_not_let_in(status: dict[str, str], age: float, message: str) -> None:
    asked = []

    class Events(ApiClient):
        def list(self, resource: Resource, namespace: str = "", **options: Any) -> Listing:
            asked.append((resource, namespace, options["field_selector"]))
            words = (("Unschedulable", "an older reason", 1), ("Unschedulable", WORDS, 3), ("Other", "a fact", 5))
            events = [
                {"reason": reason, "message": text, "lastTimestamp": f"2026-01-02T03:04:0{second}Z"}
                for reason, text, second in words
            ]
            return Listing(events, "1")

    created = "2026-01-02T03:04:05Z"
    metadata = {"namespace": "team", "name": "digits-0", "uid": "g", "creationTimestamp": created}
    group = VOLCANO.trim({"metadata": metadata, "status": status})
    now = timestamps.parse_seconds(created) + age
    reader = GroupReader(Events(Api(lambda: 0.0)), clock=lambda: now)
    assert [reader.explain(group).message for _ in range(2)] == [message] * 2
    assert asked == ([(EVENTS, "team", "involvedObject.uid=g")] if WORDS in message else [])
