"""Which pod groups of a job a worker sees."""

from dataclasses import replace

from crds import labels
from gang import backends
from gang.values import GroupView
from reconcilers.group_view import GroupSight
from tests.faults.api import Api, ApiClient
from tests.reconcilers.builders import KEY

VOLCANO = backends.of("volcano")


class Behind:
    """A cache that has heard of nothing yet."""

    served = (VOLCANO.resource,)

    def indexed(self, key: str) -> list[GroupView]:  # noqa: ARG002
        return []


def test_of_a_job_that_is_over_no_group_is_overlooked_by_a_cache_that_is_behind() -> None:
    cluster = ApiClient(Api(lambda: 0.0))
    assert VOLCANO.resource is not None
    kind = {"apiVersion": VOLCANO.resource.api_version, "kind": VOLCANO.resource.kind}
    for namespace, uid in (("default", KEY.uid), ("kube-system", KEY.uid)):
        marks = {labels.JOB_UID: uid}
        cluster.create(VOLCANO.resource, {**kind, "metadata": {"name": "digits-0", "labels": marks}}, namespace)
    sight, key = GroupSight(cluster, Behind()), replace(KEY, namespace="default")
    assert sight.of(key, "volcano") == ()
    assert [(each.namespace, each.name) for each in sight.of(key, "volcano", over=True)] == [("default", "digits-0")]
