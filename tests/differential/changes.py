"""Calls that change objects: replacements and patches.

One rule: each function yields one event of a story: a single call, or a few related calls.
"""
# ruff: noqa: E501

from collections.abc import Callable, Iterator
from typing import Any

from crds.api_resources import Resource
from tests.differential.manifests import SUBRESOURCES, spoiled
from tests.differential.story import Story, call
from tests.differential.wire import Call
from tests.support.kube.widgets import WIDGETS

MERGE, JSON_PATCH = "application/merge-patch+json", "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"


def put(story: Story) -> Iterator[Call]:
    kind, section = story.kind(), ""
    name = story.name(kind)
    body = story.current(kind, name)
    own = body["metadata"]
    odd: list[Callable[[], Any]] = [lambda: None] * 5 + [
        lambda: own.pop("resourceVersion"),
        lambda: own.update(resourceVersion="@{old:" + story.key(kind, name) + "}"),
        lambda: own.update(resourceVersion=story.r.choice(["x", "0", "99999999", "-1"])),
        lambda: own.update(uid="@{uid:" + story.key(kind, name) + "}"),
        lambda: own.update(uid="11111111-1111-4111-8111-111111111111"),
        lambda: own.update(name="other"), lambda: own.pop("name"), lambda: own.update(namespace="other"),
        lambda: body.update(kind="Other"), lambda: body.pop("kind"), lambda: body.update(apiVersion="v7"),
        lambda: own.update(finalizers=["x.y/z"]), lambda: own.update(generation=77), lambda: own.update(creationTimestamp=None),
        lambda: own.update(ownerReferences=[{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "b", "controller": True}] * 2),
        lambda: body.update(spoiled(story.r, body, protect=("name", "resourceVersion"))),
    ]  # fmt: skip
    story.r.choice(odd)()
    if kind in SUBRESOURCES and story.r.random() < 0.4:
        section = "/status"
        body["status"] = story.r.choice(
            [{"phase": "Running"}, {"phase": "Running", "ready": 2}, {}, None, {"unknown": 1}, {"replicas": "x"}]
        )
    elif story.r.random() < 0.2:
        body["status"] = {"phase": "Running"}
    query = story.r.choice(["", "", "", "?dryRun=All", "?fieldValidation=Strict"])
    yield call(f"put{section} {kind.plural}", "PUT", kind.path(story.namespace, name) + section + query, body)
    yield Call(f"get {kind.plural}", "GET", kind.path(story.namespace, name))


def patch(story: Story) -> Iterator[Call]:
    kind = story.kind()
    name = story.name(kind)
    section = "/status" if kind in SUBRESOURCES and story.r.random() < 0.25 else ""
    query = story.r.choice(
        ["", "", "", "?dryRun=All", "?fieldValidation=Strict", "?fieldValidation=Ignore", "?force=true"]
    )
    sent, body = _merge_patch(story, kind, name) if story.r.random() < 0.5 else _json_patch(story, kind)
    yield call(
        f"{sent.partition('/')[2][:5]}{section} {kind.plural}",
        "PATCH",
        kind.path(story.namespace, name) + section + query,
        body,
        {"Content-Type": sent},
    )
    yield Call(f"get {kind.plural}", "GET", kind.path(story.namespace, name))


def _merge_patch(story: Story, kind: Resource, name: str) -> tuple[str, Any]:
    key = story.key(kind, name)
    body = story.r.choice([
        {"metadata": {"labels": {"app": story.r.choice(["a", "b", "c"])}}}, {"metadata": {"labels": None}}, {"metadata": {"labels": {"app": None, "tier": "x"}}}, {"metadata": {"annotations": {"a": "b"}}},
        {"metadata": {"finalizers": story.r.choice([["x.y/z"], [], None, ["bad"], ["orphan"]])}}, {"metadata": {"name": "other"}}, {"metadata": {"uid": "x"}}, {"metadata": {"namespace": "other"}},
        {"metadata": {"resourceVersion": "@{old:" + key + "}", "labels": {"app": "b"}}}, {"metadata": {"resourceVersion": "@{rv:" + key + "}", "labels": {"app": "c"}}},
        {"metadata": {"generation": 9, "creationTimestamp": None, "deletionTimestamp": "2030-01-01T00:00:00Z"}}, {"metadata": {"generateName": "g"}}, {"metadata": None}, {"metadata": {"labels": {"a": 1}}},
        {"spec": None}, {"spec": {}}, {"spec": {"size": story.r.choice([1, 5, "x", None, 1.5, 2.0, -1])}}, {"spec": {"unknown": 1}}, {"status": {"phase": "Running"}}, {"status": None}, {"kind": "Other"},
        {"apiVersion": "v9"}, {"unknown": {"a": 1}}, {}, [], 3, None, "x", {"data": {"c": "ZA=="}}, {"spec": story.body(kind, name).get("spec")}, {"spec": {"suspend": True, "weight": 7}},
        {"spec": {"containers": [{"name": "main", "image": "other"}]}}, {"spec": {"activeDeadlineSeconds": 5}}, {"spec": {"terminationGracePeriodSeconds": 1}}, {"spec": {"nodeName": "n2"}},
        {"metadata": {"labels": {"app": "ü"}}}, {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "X", "name": "x"}]}}, {"status": {"ready": 3, "conditions": []}}, {"spec": {"weight": 0}},
        {"spec": {"torchTaskSpecs": {"Worker": {"numTasks": story.r.choice([2, 0, None])}}}}, {"status": {"conditions": [{"type": "Ready", "status": "True"}]}},
    ])  # fmt: skip
    kinds = (
        [MERGE] * 6
        + [STRATEGIC] * 2
        + ["application/json", "application/yaml", "", "text/plain", "application/merge-patch+json; charset=utf-8"]
    )
    return story.r.choice(kinds), body


def _json_patch(story: Story, kind: Resource) -> tuple[str, Any]:
    labels, spec = "/metadata/labels", "/spec/size" if kind == WIDGETS else "/spec/suspend"
    one = [
        {"op": "add", "path": labels, "value": {"app": "b"}}, {"op": "add", "path": labels + "/app", "value": "c"}, {"op": "remove", "path": labels + "/app"}, {"op": "replace", "path": labels + "/app", "value": "a"},
        {"op": "test", "path": labels + "/app", "value": "a"}, {"op": "test", "path": "/metadata/name", "value": "nope"}, {"op": "test", "path": "/nothing", "value": None}, {"op": "move", "from": labels, "path": "/metadata/annotations"},
        {"op": "copy", "from": labels, "path": "/metadata/annotations"}, {"op": "move", "from": "/nothing", "path": "/a"}, {"op": "copy", "from": "/x/y", "path": "/a"}, {"op": "nope", "path": "/a"}, {"path": "/a"},
        {"op": "add", "path": "a", "value": 1}, {"op": "add", "path": "", "value": {}}, {"op": "remove", "path": "/metadata"}, {"op": "remove", "path": "/nothing"}, {"op": "replace", "path": "/nothing", "value": 1},
        {"op": "add", "path": spec, "value": story.r.choice([1, 2.5, "x", None, True])}, {"op": "replace", "path": spec, "value": 7}, {"op": "add", "path": "/metadata/finalizers/-", "value": "x.y/z"}, {"op": "add", "path": "/a~1b", "value": 1},
        {"op": "add", "path": "/metadata/finalizers", "value": ["x.y/z"]}, {"op": "remove", "path": "/metadata/finalizers/0"}, {"op": "remove", "path": "/metadata/finalizers/7"}, {"op": "remove", "path": "/metadata/finalizers"},
        {"op": "replace", "path": "/metadata/name", "value": "other"}, {"op": "replace", "path": "/metadata/resourceVersion", "value": "1"}, {"op": "add", "path": "/status", "value": {"phase": "Running"}}, {"op": "add", "path": labels},
        {"op": "replace", "path": "", "value": []}, {"op": "add", "path": "/metadata/labels/a/b", "value": 1}, {"op": "replace", "path": "/kind", "value": "Other"}, {"op": "test", "path": "/spec/size", "value": 1.0},
    ]  # fmt: skip
    body: Any = story.r.choices(one, k=story.r.choice([1, 1, 2, 3]))
    if story.r.random() < 0.08:
        body = story.r.choice([[], {}, "x", [1], [None], None, [{"op": 1}], [{"op": "add", "path": 1}]])
    return JSON_PATCH, body
