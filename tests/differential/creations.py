"""Calls that create objects: valid objects, mutated objects, unusual objects, and bytes that are no object.

One rule: each function yields one event of a story: a single call, or a few related calls.
"""
# ruff: noqa: E501

import json
from collections.abc import Callable, Iterator
from typing import Any

from crds.api_resources import PODS, Resource
from tests.differential.manifests import spoiled
from tests.differential.story import Story, call
from tests.differential.wire import Call


def create(story: Story) -> Iterator[Call]:
    kind = story.kind()
    yield story.post(
        "create",
        kind,
        story.body(kind, story.name(kind)),
        story.r.choice(["", "", "?fieldManager=me", "?dryRun=All"]),
    )


def create_spoiled(story: Story) -> Iterator[Call]:
    kind = story.kind()
    body = spoiled(story.r, story.body(kind, story.name(kind, 1)))
    query = story.r.choice(
        ["", "?fieldValidation=Strict", "?fieldValidation=Warn", "?fieldValidation=Ignore", "?dryRun=All"]
    )
    yield story.post("spoiled", kind, body, query)
    yield delete_quietly(story, kind, story.name(kind, 1))


def create_odd(story: Story) -> Iterator[Call]:
    kind = story.kind()
    body = story.body(kind, story.name(kind, 1))
    own, where = body["metadata"], kind.path(story.namespace)
    odd: list[Callable[[], Any]] = [
        lambda: own.update(name=story.r.choice(["Bad_Name", "a" * 300, "a..b", "-a", "ü", "a/b", "a%b", ".", "..", "a.b", "x" * 64, "9a", "", "A"])),
        lambda: own.update(name="", generateName=story.r.choice(["gen-", "Gen_", "gen-" + "a" * 70, "gen-a."])),
        lambda: own.pop("name") and None,
        lambda: own.update(namespace="other"),
        lambda: own.update(namespace=story.namespace),
        lambda: body.update(kind="Other"),
        lambda: body.update(apiVersion=story.r.choice(["example.com/v7", "v1", "v2", "a/b/c", ""])),
        lambda: body.pop("kind") and None,
        lambda: body.pop("apiVersion") and None,
        lambda: own.update(resourceVersion=story.r.choice(["1", "0", "", "x"])),
        lambda: own.update(uid="11111111-1111-4111-8111-111111111111", creationTimestamp="2020-01-01T00:00:00Z", generation=7, selfLink="x"),
        lambda: own.update(labels=story.r.choice([{"a b": "c"}, {"a": "b c"}, {"a": "x" * 64}, {"x" * 64: "a"}, {"a/b/c": "d"}, {"": "a"}, {"-": ""}, {"A/b": ""}])),
        lambda: own.update(annotations=story.r.choice([{"a b": "c"}, {"A/B": "c"}, {"a": "x" * 300000}, {"": ""}])),
        lambda: own.update(finalizers=story.r.choice([["a"], ["a/b"], ["a b"], ["x.y/z", "x.y/z"], ["kubernetes"]])),
        lambda: own.update(ownerReferences=story.r.choice([[{"apiVersion": "v1", "kind": "Pod", "name": "", "uid": ""}], [{}], [{"apiVersion": "a/b/c", "kind": "P", "name": "n", "uid": "u"}],
                                                          [{"apiVersion": "v1", "kind": "Event", "name": "n", "uid": "u"}]])),
        lambda: own.update(deletionTimestamp="2020-01-01T00:00:00Z", deletionGracePeriodSeconds=5),
        lambda: own.update(managedFields=[]),
        lambda: body.update(status={"phase": "Mine"}),
        lambda: body.update(metadata=story.r.choice([None, [], "x", {}])),
        lambda: body.update(spec=story.r.choice([None, [], "x", {}, 3])),
    ]  # fmt: skip
    story.r.choice(odd)()
    yield call(f"odd {kind.plural}", "POST", where + story.r.choice(["", "", "?fieldValidation=Strict"]), body)
    yield delete_quietly(story, kind, story.name(kind, 1))


def create_raw(story: Story) -> Iterator[Call]:
    kind = story.kind()
    good = json.dumps(story.body(kind, story.name(kind, 1)))
    double = good[:-1] + ', "kind": ' + json.dumps(kind.kind) + "}"
    deep = '{"apiVersion": "x", "kind": "y", "a": ' + "[" * 200 + "]" * 200 + "}"
    yaml = f"apiVersion: {kind.api_version}\nkind: {kind.kind}\nmetadata:\n  name: {story.name(kind, 1)}\n"
    text, sent = story.r.choice([
        ("", "application/json"), ("{", "application/json"), ("[]", "application/json"), ("null", "application/json"), ("3", "application/json"), ('"a"', "application/json"),
        ("{}", "application/json"), (double, "application/json"), (good + "x", "application/json"), (good, "text/plain"), (good, "application/xml"), (good, ""), (deep, "application/json"),
        (yaml, "application/yaml"), (yaml, "application/json"), ("a: [", "application/yaml"), (good, "application/json; charset=utf-8"), (good.replace('"name"', '"NAME"', 1), "application/json"),
        (good, "application/vnd.kubernetes.protobuf"), (good, "application/cbor"), (good[:-1] + ',"a":1,"a":2}', "application/json"), ("\ufeff" + good, "application/json"),
        (good.replace('"metadata": {', '"metadata": {"name": "other", ', 1), "application/json"), ("{'a': 1}", "application/json"), (good[:-1] + ',"n": NaN}', "application/json"),
        (good[:-1] + ',"n": 01}', "application/json"), (good[:-1] + ',"n": 1e999}', "application/json"), (good[:-1] + ',}', "application/json"),
    ])  # fmt: skip
    query = story.r.choice(
        [
            "",
            "?fieldValidation=Strict",
            "?fieldValidation=Ignore",
            "?fieldValidation=Nope",
            "?dryRun=Some",
            "?fieldManager=" + "x" * 200,
            "?pretty=true",
            "?dryRun=All&dryRun=All",
        ]
    )
    yield Call(f"raw {kind.plural}", "POST", kind.path(story.namespace) + query, text, (("Content-Type", sent),))
    yield delete_quietly(story, kind, story.name(kind, 1))


def delete_quietly(story: Story, kind: Resource, name: str) -> Call:
    return call(
        f"delete {kind.plural}",
        "DELETE",
        kind.path(story.namespace, name),
        {"gracePeriodSeconds": 0} if kind == PODS else None,
    )
