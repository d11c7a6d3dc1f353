"""Calls that scale, bind, evict and delete objects.

One rule: each function yields one event of a story: a single call, or a few related calls.
"""
# ruff: noqa: E501

from collections.abc import Callable, Iterator
from typing import Any

from crds.api_resources import CRDS, NAMESPACES, PODS, SERVICES
from tests.differential.story import Story, call
from tests.differential.wire import Call
from tests.support.kube.widgets import WIDGETS

MERGE, JSON_PATCH = "application/merge-patch+json", "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"


def scale(story: Story) -> Iterator[Call]:
    kind = WIDGETS if story.r.random() < 0.9 else story.kind()
    name = story.name(kind)
    where = kind.path(story.namespace, name) + "/scale"
    body: Any = {
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": {"name": name, "namespace": story.namespace},
        "spec": {"replicas": story.r.choice([0, 3, -1, 200, "x", 1.5, None])},
    }
    own = body["metadata"]
    odd: list[Callable[[], Any]] = [lambda: None] * 4 + [
        lambda: own.update(resourceVersion="@{rv:" + story.key(kind, name) + "}"), lambda: own.update(resourceVersion="1"), lambda: own.pop("name"), lambda: body.update(kind="Other"),
        lambda: own.update(name="other"), lambda: body.pop("spec"), lambda: body.update(extra=1), lambda: own.update(uid="x"), lambda: body.pop("apiVersion"), lambda: own.pop("namespace"),
    ]  # fmt: skip
    story.r.choice(odd)()
    patch = story.r.choice(
        [
            {"spec": {"replicas": story.r.choice([4, -2, None, "x", 1000])}},
            {"spec": None},
            {},
            {"spec": {"other": 1}},
            {"metadata": {"labels": {"a": "b"}}},
            {"status": {"replicas": 9}},
        ]
    )
    query = story.r.choice(["", "", "?dryRun=All", "?fieldValidation=Strict"])
    yield story.r.choice([Call("scale", "GET", where), call("scale", "PUT", where + query, body), call("scale", "PATCH", where + query, patch, {"Content-Type": MERGE}),
                         call("scale", "PATCH", where, [{"op": "replace", "path": "/spec/replicas", "value": 2}], {"Content-Type": JSON_PATCH})])  # fmt: skip
    yield Call(f"get {kind.plural}", "GET", kind.path(story.namespace, name))


def bind(story: Story) -> Iterator[Call]:
    name = story.name(PODS)
    body: Any = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
    }
    story.r.choice([lambda: None, lambda: None, lambda: body["target"].pop("name"), lambda: body.pop("target"), lambda: body["target"].update(kind="Pod"), lambda: body["metadata"].update(uid="x"),
                   lambda: body["metadata"].update(name="other"), lambda: body.update(kind="Other"), lambda: body["metadata"].update(annotations={"a": "b"}), lambda: body["metadata"].pop("name")])()  # fmt: skip
    where = story.r.choice(
        [PODS.path(story.namespace, name) + "/binding", f"/api/v1/namespaces/{story.namespace}/bindings"]
    )
    yield story.post("create", PODS, story.body(PODS, name))
    yield call("bind", "POST", where + story.r.choice(["", "", "?dryRun=All"]), body)
    yield Call("get pods", "GET", PODS.path(story.namespace, name))


def evict(story: Story) -> Iterator[Call]:
    name = story.name(PODS)
    body: Any = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    story.r.choice(
        [
            lambda: None,
            lambda: body.update(deleteOptions={"gracePeriodSeconds": 0}),
            lambda: body["metadata"].update(name="other"),
            lambda: body.update(kind="Other"),
            lambda: body.update(deleteOptions={"dryRun": ["All"]}),
        ]
    )()
    yield call("evict", "POST", PODS.path(story.namespace, name) + "/eviction", body)
    yield Call("get pods", "GET", PODS.path(story.namespace, name))


def delete(story: Story) -> Iterator[Call]:
    kind = story.kind()
    name = story.name(kind)
    key = story.key(kind, name)
    body = story.r.choice([
        None, None, {}, {"preconditions": {"uid": "@{uid:" + key + "}"}}, {"preconditions": {"uid": "x"}}, {"preconditions": {"resourceVersion": "@{rv:" + key + "}"}}, {"preconditions": {"resourceVersion": "1"}},
        {"gracePeriodSeconds": story.r.choice([0, 5, -1, 1])}, {"propagationPolicy": story.r.choice(["Background", "Foreground", "Orphan", "Nope", ""])}, {"orphanDependents": story.r.choice([True, False])},
        {"dryRun": ["All"]}, {"dryRun": ["Some"]}, {"kind": "DeleteOptions", "apiVersion": "v1"}, {"kind": "Pod", "apiVersion": "v1"}, {"unknown": 1}, {"gracePeriodSeconds": "x"}, [], "x", {"preconditions": "x"},
        {"orphanDependents": True, "propagationPolicy": "Background"}, {"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"}, {"preconditions": {"uid": "x", "resourceVersion": "1"}},
    ])  # fmt: skip
    query = story.r.choice(
        [
            "",
            "",
            "",
            "?gracePeriodSeconds=0",
            "?propagationPolicy=Foreground",
            "?dryRun=All",
            "?gracePeriodSeconds=x",
            "?orphanDependents=true",
            "?propagationPolicy=Nope",
            "?gracePeriodSeconds=-5",
        ]
    )
    yield call(f"delete {kind.plural}", "DELETE", kind.path(story.namespace, name) + query, body)
    yield Call(f"get {kind.plural}", "GET", kind.path(story.namespace, name))


def delete_many(story: Story) -> Iterator[Call]:
    kind = story.kind()
    where = kind.path(story.namespace)
    if not kind.namespaced:
        where += "?fieldSelector=metadata.name=" + story.name(kind)
    else:
        where += story.r.choice(
            [
                "",
                "?labelSelector=app=a",
                "?labelSelector=a b",
                "?fieldSelector=metadata.name=x",
                "?dryRun=All",
                "?labelSelector=tier",
                "?limit=1",
            ]
        )
    if kind not in {NAMESPACES, CRDS, SERVICES}:
        yield call(
            f"delete many {kind.plural}",
            "DELETE",
            where,
            story.r.choice([None, None, {"gracePeriodSeconds": 0}, {"preconditions": {"uid": "x"}}]),
        )
