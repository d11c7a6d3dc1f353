"""Deletions of pods: what each request changes, and how watches show the changes.

One rule: the cases have a kubelet and a second client, since these cases show who asked for the end of a pod.
"""

from collections.abc import Mapping
from typing import Any

import pytest

from crds import timestamps
from crds.api_resources import PODS
from embedded.apiserver.kinds import builtins
from embedded.apiserver.kinds.catalog import Catalog
from embedded.apiserver.verbs.deletions import RemovalTime, next_removal
from kube import errors
from kube.client import KubernetesCluster
from tests.support.kube.widgets import pod

Request = tuple[str, Any]
"""A verb with its argument: `delete` with a grace, `end` with a phase, `release` of the finalizer."""
Seen = tuple[str, int | None, int | None, str]
"""An event: its kind, the grace, the seconds from the creation to the deletionTimestamp in tens, and the phase."""
NODE, FINALIZER = {"nodeName": "n"}, {"finalizers": ["example.com/hold"]}
ADDED: Seen = ("ADDED", None, None, "Pending")
GRANTED: Seen = ("MODIFIED", 300, 30, "Pending")
NOW: Seen = ("MODIFIED", 0, 0, "Pending")
GONE: Seen = ("DELETED", 0, 0, "Pending")

STORIES: dict[str, tuple[Mapping[str, Any], Mapping[str, Any], list[Request], list[Seen]]] = {
    "an unbound pod goes at once": ({}, {}, [("delete", 300)], [ADDED, NOW, GONE]),
    "a bound pod has the grace of its spec": (
        {**NODE, "terminationGracePeriodSeconds": 60},
        {},
        [("delete", None)],
        [ADDED, ("MODIFIED", 60, 6, "Pending")],
    ),
    "the node's request moves the deletion to now": (
        NODE,
        {},
        [("delete", 300), ("end", "Running"), ("end", "Succeeded"), ("delete", 0)],
        [
            ADDED,
            GRANTED,
            ("MODIFIED", 300, 30, "Running"),
            ("MODIFIED", 300, 30, "Succeeded"),
            ("MODIFIED", 0, 0, "Succeeded"),
            ("DELETED", 0, 0, "Succeeded"),
        ],
    ),
    "a shorter grace counts from the first request": (
        NODE,
        {},
        [("delete", 300), ("delete", 100)],
        [ADDED, GRANTED, ("MODIFIED", 100, 10, "Pending")],
    ),
    "a longer or equal grace changes nothing": (
        NODE,
        {},
        [("delete", 300), ("delete", 300), ("delete", 600)],
        [ADDED, GRANTED],
    ),
    "a second request without a grace changes nothing": (
        NODE,
        {},
        [("delete", 300), ("delete", None)],
        [ADDED, GRANTED],
    ),
    "a second request leaves a finished pod to its node": (
        NODE,
        {},
        [("delete", 300), ("end", "Failed"), ("delete", None)],
        [ADDED, GRANTED, ("MODIFIED", 300, 30, "Failed")],
    ),
    "a finished pod goes at once": (
        NODE,
        {},
        [("end", "Failed"), ("delete", 300)],
        [ADDED, ("MODIFIED", None, None, "Failed"), ("MODIFIED", 0, 0, "Failed"), ("DELETED", 0, 0, "Failed")],
    ),
    "a negative grace is a second": (NODE, {}, [("delete", -5)], [ADDED, ("MODIFIED", 1, 0, "Pending")]),
    "a finalizer keeps a pod that its node has released": (
        NODE,
        FINALIZER,
        [("delete", 300), ("delete", 0), ("delete", 0), ("release", None)],
        [ADDED, GRANTED, NOW, GONE],
    ),
    "a released finalizer leaves the pod to its node": (
        NODE,
        FINALIZER,
        [("delete", 300), ("release", None), ("delete", 0)],
        [ADDED, GRANTED, GRANTED, NOW, GONE],
    ),
}


@pytest.mark.parametrize(("spec", "metadata", "requests", "expected"), STORIES.values(), ids=STORIES.keys())
def test_watch_shows_each_step_of_the_deletion_of_a_pod(
    cluster: KubernetesCluster,
    namespace: str,
    spec: Mapping[str, Any],
    metadata: Mapping[str, Any],
    requests: list[Request],
    expected: list[Seen],
) -> None:
    body = pod("p", **spec)
    start = cluster.list(PODS, namespace).resource_version
    cluster.create(PODS, {**body, "metadata": {**body["metadata"], **metadata}}, namespace)
    for verb, argument in requests:
        _send(cluster, namespace, verb, argument)
    cluster.create(PODS, pod("last"), namespace)
    watch = cluster.watch(PODS, namespace, resource_version=start, timeout_seconds=20)
    told: list[Seen] = []
    for event in watch:
        if event.object["metadata"].get("name") == "last":
            break
        told.append(_seen(event.kind, event.object))
    watch.close()
    assert told == expected


def _send(cluster: KubernetesCluster, namespace: str, verb: str, argument: Any) -> None:
    match verb:
        case "delete":
            cluster.delete(PODS, "p", namespace, grace_period_seconds=argument)
        case "end":
            cluster.patch(PODS, "p", {"status": {"phase": argument}}, namespace, subresource="status")
        case "release":
            cluster.patch(PODS, "p", {"metadata": {"finalizers": None}}, namespace)


def _seen(kind: str, found: Mapping[str, Any]) -> Seen:
    meta = found["metadata"]
    created = timestamps.parse_seconds(meta["creationTimestamp"])
    due = timestamps.seconds_or_none(meta.get("deletionTimestamp"))
    tens = None if due is None else int(due - created) // 10
    return kind, meta.get("deletionGracePeriodSeconds"), tens, found["status"]["phase"]


def test_pod_of_another_uid_is_not_deleted(cluster: KubernetesCluster, namespace: str) -> None:
    cluster.create(PODS, pod("p", **NODE), namespace)
    with pytest.raises(errors.Conflict):
        cluster.delete(PODS, "p", namespace, uid="another", grace_period_seconds=0)
    assert "deletionTimestamp" not in cluster.get(PODS, "p", namespace)["metadata"]


T = 1_000_000_000.0
LATER: dict[str, tuple[int | None, float, RemovalTime | None]] = {
    "none, in time": (None, T + 10, None),
    "none, too late": (None, T + 90, None),
    "shorter": (20, T + 10, RemovalTime(20, T + 20)),
    "shorter than what is over": (5, T + 10, RemovalTime(1, T + 10)),
    "none at all": (0, T + 10, RemovalTime(0, T + 10)),
    "none at all, at once": (0, T, RemovalTime(0, T)),
    "negative": (-1, T + 10, RemovalTime(1, T + 10)),
    "longer": (31, T + 10, None),
}


@pytest.mark.parametrize(("requested", "now", "expected"), LATER.values(), ids=LATER.keys())
def test_later_request_shortens_the_grace_but_never_into_the_past(
    requested: int | None, now: float, expected: RemovalTime | None
) -> None:
    kind = Catalog(builtins.KINDS).find(PODS.group, PODS.version, PODS.plural)
    assert kind is not None
    deleted = {"deletionTimestamp": timestamps.format_time(T + 30), "deletionGracePeriodSeconds": 30}
    assert next_removal(kind, {"metadata": deleted, "spec": NODE}, requested, now) == expected
