"""The calls of one episode: a seeded story about a few objects in a namespace of its own.

One rule: a call is chosen without knowing what the server answered; what does not work out is a test as well.
"""

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

from crds.resources import CRDS, NAMESPACES, NODES, PODS, PRIORITY_CLASSES, SERVICES, TENANT_QUEUES, TORCHJOBS, Resource
from tests.cluster.widgets import WIDGETS
from tests.differential.manifests import MAKERS, SECRETS, STRANGE, SUBRESOURCES, make, spoiled
from tests.differential.wire import Call

MERGE, JSON_PATCH = "application/merge-patch+json", "application/json-patch+json"
STRATEGIC, APPLY = "application/strategic-merge-patch+json", "application/apply-patch+yaml"
_WEIGHTS: dict[Resource, int] = {WIDGETS: 5, TORCHJOBS: 4, PODS: 4, TENANT_QUEUES: 2, CRDS: 1}
SELECTORS = [
    "app=a", "app!=a", "app in (a,b)", "app notin (a)", "app", "!app", "app=a,tier=x", "app==b", "tier in (x),app", "nope=1",
    "app in a", "app in (", "=", "a b", "app=a,", ",app", "app=a b", "app=-", "app>1", "app>x", "!", "app in ()", "app=ü", "a/b/c=d",
    "app = a", " app in ( a , b ) ", "app=" + "a" * 70, "/x=1", "app!", "app=(a)", "app notin", "app,app=a", "app=a,app=b", "x.y/app=a", "app in (a",
]  # fmt: skip
FIELDS = ["metadata.name=one", "metadata.name!=one", "metadata.namespace=nowhere", "spec.nodeName=n1", "spec.nodeName=", "status.phase=Pending", "status.phase!=Running",
          "spec.size=1", "metadata.name", "metadata.name=one,metadata.name=two", "metadata.labels.app=a", "=", "a=b", "metadata.name in (one)", "type=Opaque", "reason=Why",
          "involvedObject.name=p", "spec.unschedulable=true", "spec.restartPolicy=Always", "metadata.uid=x", "metadata.name==one", "metadata.name=a\\,b", "status.podIP=1",
          "spec.clusterIP=None", "spec.type=ClusterIP", "involvedObject.kind=Pod", "source=x", "spec.serviceAccountName=sa", "spec.hostNetwork=true", "status.nominatedNodeName="]  # fmt: skip


class Story:
    """Writes the calls of one episode."""

    def __init__(self, r: random.Random, namespace: str) -> None:
        self.r = r
        self.namespace = namespace
        kinds = list(MAKERS)
        self.kinds = r.choices(kinds, [_WEIGHTS.get(kind, 1) for kind in kinds], k=2)
        self.names = [f"{namespace}-{word}" for word in ("one", "two")]

    def calls(self, count: int) -> Iterator[Call]:
        """So many calls, the first of them making what the others are about."""
        for kind in dict.fromkeys(self.kinds):
            yield self._post("create", kind, self._body(kind, self._name(kind, 0)))
        tellers = list(_TELLERS)
        for _ in range(count):
            teller = self.r.choices(tellers, [_TELLERS[teller] for teller in tellers])[0]
            yield from teller(self)

    def watches(self) -> Iterator[Call]:
        """What watchers of the whole episode see, from the first version on."""
        for kind in dict.fromkeys(self.kinds):
            if kind in {NAMESPACES, CRDS, PRIORITY_CLASSES, NODES, TENANT_QUEUES}:
                continue  # others write them at the same time
            base = f"{kind.path(self.namespace)}?watch=1&timeoutSeconds=1&resourceVersion=@{{start}}"
            yield Call("watch", "GET", base)
            yield Call("watch", "GET", base + "&labelSelector=" + self.r.choice(["app=a", "app!=a", "tier=x", "!app"]))
            yield Call("watch", "GET", base + "&fieldSelector=metadata.name=" + self._name(kind, 0))
            if kind == PODS:
                yield Call(
                    "watch", "GET", base + "&fieldSelector=" + self.r.choice(["spec.nodeName=", "status.phase=Pending"])
                )

    # Pieces

    def _kind(self) -> Resource:
        return self.r.choice(self.kinds)

    def _name(self, kind: Resource, index: int | None = None) -> str:
        name = self.names[self.r.randrange(2) if index is None else index]
        return f"{name.replace('-', '')}.diff.example.com" if kind == CRDS else name

    def _body(self, kind: Resource, name: str) -> dict[str, Any]:
        return make(self.r, kind, name, self.namespace)

    def _key(self, kind: Resource, name: str) -> str:
        return f"{kind.kind}/{self.namespace if kind.namespaced else ''}/{name}"

    def _post(self, label: str, kind: Resource, body: Any, query: str = "", **headers: str) -> Call:
        return _call(f"{label} {kind.plural}", "POST", kind.path(self.namespace) + query, body, headers)

    def _current(self, kind: Resource, name: str) -> dict[str, Any]:
        body = self._body(kind, name)
        body["metadata"]["resourceVersion"] = "@{rv:" + self._key(kind, name) + "}"
        return body

    # Tellers: each a kind of thing that happens

    def create(self) -> Iterator[Call]:
        kind = self._kind()
        yield self._post(
            "create",
            kind,
            self._body(kind, self._name(kind)),
            self.r.choice(["", "", "?fieldManager=me", "?dryRun=All"]),
        )

    def create_spoiled(self) -> Iterator[Call]:
        kind = self._kind()
        body = spoiled(self.r, self._body(kind, self._name(kind, 1)))
        query = self.r.choice(
            ["", "?fieldValidation=Strict", "?fieldValidation=Warn", "?fieldValidation=Ignore", "?dryRun=All"]
        )
        yield self._post("spoiled", kind, body, query)
        yield self.delete_quietly(kind, self._name(kind, 1))

    def create_odd(self) -> Iterator[Call]:
        kind = self._kind()
        body = self._body(kind, self._name(kind, 1))
        own, where = body["metadata"], kind.path(self.namespace)
        odd: list[Callable[[], None]] = [
            lambda: own.update(name=self.r.choice(["Bad_Name", "a" * 300, "a..b", "-a", "ü", "a/b", "a%b", ".", "..", "a.b", "x" * 64, "9a", "", "A"])),
            lambda: (own.pop("name"), own.update(generateName=self.r.choice(["gen-", "Gen_", "gen-" + "a" * 70, "gen-a."]))) and None,
            lambda: own.pop("name") and None,
            lambda: own.update(namespace="other"),
            lambda: own.update(namespace=self.namespace),
            lambda: body.update(kind="Other"),
            lambda: body.update(apiVersion=self.r.choice(["example.com/v7", "v1", "v2", "a/b/c", ""])),
            lambda: body.pop("kind") and None,
            lambda: body.pop("apiVersion") and None,
            lambda: own.update(resourceVersion=self.r.choice(["1", "0", "", "x"])),
            lambda: own.update(uid="11111111-1111-4111-8111-111111111111", creationTimestamp="2020-01-01T00:00:00Z", generation=7, selfLink="x"),
            lambda: own.update(labels=self.r.choice([{"a b": "c"}, {"a": "b c"}, {"a": "x" * 64}, {"x" * 64: "a"}, {"a/b/c": "d"}, {"": "a"}, {"-": ""}, {"A/b": ""}])),
            lambda: own.update(annotations=self.r.choice([{"a b": "c"}, {"A/B": "c"}, {"a": "x" * 300000}, {"": ""}])),
            lambda: own.update(finalizers=self.r.choice([["a"], ["a/b"], ["a b"], ["x.y/z", "x.y/z"], ["kubernetes"]])),
            lambda: own.update(ownerReferences=self.r.choice([[{"apiVersion": "v1", "kind": "Pod", "name": "", "uid": ""}], [{}], [{"apiVersion": "a/b/c", "kind": "P", "name": "n", "uid": "u"}],
                                                              [{"apiVersion": "v1", "kind": "Event", "name": "n", "uid": "u"}]])),
            lambda: own.update(deletionTimestamp="2020-01-01T00:00:00Z", deletionGracePeriodSeconds=5),
            lambda: own.update(managedFields=[]),
            lambda: body.update(status={"phase": "Mine"}),
            lambda: body.update(metadata=self.r.choice([None, [], "x", {}])),
            lambda: body.update(spec=self.r.choice([None, [], "x", {}, 3])),
        ]  # fmt: skip
        self.r.choice(odd)()
        yield _call(f"odd {kind.plural}", "POST", where + self.r.choice(["", "", "?fieldValidation=Strict"]), body)
        yield self.delete_quietly(kind, self._name(kind, 1))

    def create_raw(self) -> Iterator[Call]:
        kind = self._kind()
        good = json.dumps(self._body(kind, self._name(kind, 1)))
        double = good[:-1] + ', "kind": ' + json.dumps(kind.kind) + "}"
        deep = '{"apiVersion": "x", "kind": "y", "a": ' + "[" * 200 + "]" * 200 + "}"
        yaml = f"apiVersion: {kind.api_version}\nkind: {kind.kind}\nmetadata:\n  name: {self._name(kind, 1)}\n"
        text, sent = self.r.choice([
            ("", "application/json"), ("{", "application/json"), ("[]", "application/json"), ("null", "application/json"), ("3", "application/json"), ('"a"', "application/json"),
            ("{}", "application/json"), (double, "application/json"), (good + "x", "application/json"), (good, "text/plain"), (good, "application/xml"), (good, ""), (deep, "application/json"),
            (yaml, "application/yaml"), (yaml, "application/json"), ("a: [", "application/yaml"), (good, "application/json; charset=utf-8"), (good.replace('"name"', '"NAME"', 1), "application/json"),
            (good, "application/vnd.kubernetes.protobuf"), (good, "application/cbor"), (good[:-1] + ',"a":1,"a":2}', "application/json"), ("\ufeff" + good, "application/json"),
            (good.replace('"metadata": {', '"metadata": {"name": "other", ', 1), "application/json"), ("{'a': 1}", "application/json"), (good[:-1] + ',"n": NaN}', "application/json"),
            (good[:-1] + ',"n": 01}', "application/json"), (good[:-1] + ',"n": 1e999}', "application/json"), (good[:-1] + ',}', "application/json"),
        ])  # fmt: skip
        query = self.r.choice(
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
        yield Call(f"raw {kind.plural}", "POST", kind.path(self.namespace) + query, text, (("Content-Type", sent),))
        yield self.delete_quietly(kind, self._name(kind, 1))

    def read(self) -> Iterator[Call]:
        kind = self._kind()
        where = kind.path(self.namespace, self._name(kind))
        extra = self.r.choice(
            [
                "",
                "",
                "",
                "?pretty=true",
                "?resourceVersion=0",
                "/status",
                "/scale",
                "/nothing",
                "/status/x",
                "?resourceVersion=99999999999",
                "?resourceVersion=x",
            ]
        )
        yield Call(f"get {kind.plural}", "GET", where + (extra if "9999" not in extra or self.r.random() < 0.1 else ""))

    def list(self) -> Iterator[Call]:
        kind = self._kind()
        if not kind.namespaced:  # others are writing there: only what is wrong can be compared
            selector = self.r.choice(SELECTORS) + ",nobody=has" if self.r.random() < 0.5 else "a b"
            yield Call(f"list {kind.plural}", "GET", kind.path() + "?labelSelector=" + _quoted(selector))
            return
        query = "&".join(filter(None, [
            "labelSelector=" + _quoted(self.r.choice(SELECTORS)) if self.r.random() < 0.4 else "",
            "fieldSelector=" + _quoted(self.r.choice(FIELDS)) if self.r.random() < 0.3 else "",
            "limit=" + self.r.choice(["0", "1", "2", "-1", "x", "", "1.5", "99999999999999999999"]) if self.r.random() < 0.3 else "",
            "resourceVersion=" + self.r.choice(["", "@{listrv}", "x", "-1", "1"]) if self.r.random() < 0.2 else "",
            "resourceVersionMatch=" + self.r.choice(["Exact", "NotOlderThan", "Nope"]) if self.r.random() < 0.1 else "",
            "sendInitialEvents=true" if self.r.random() < 0.02 else "", "timeoutSeconds=" + self.r.choice(["5", "x", "-1"]) if self.r.random() < 0.05 else "",
        ]))  # fmt: skip
        yield Call(f"list {kind.plural}", "GET", kind.path(self.namespace) + ("?" + query if query else ""))

    def pages(self) -> Iterator[Call]:
        kind = self.r.choice([WIDGETS, PODS])
        where = kind.path(self.namespace)
        yield self._post("create", kind, self._body(kind, self._name(kind, 1)))
        yield Call("page", "GET", f"{where}?limit=1")
        more = self.r.choice(
            [
                "&limit=1",
                "",
                "&limit=5",
                "&resourceVersion=0",
                "&resourceVersion=5",
                "&labelSelector=app",
                "&resourceVersionMatch=Exact",
                "&limit=0",
            ]
        )
        yield Call("page", "GET", f"{where}?continue=@{{continue}}{more}")
        yield Call(
            "page",
            "GET",
            f"{where}?continue={self.r.choice(['x', 'eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiJ4In0', ''])}&limit=1",
        )

    def put(self) -> Iterator[Call]:
        kind, section = self._kind(), ""
        name = self._name(kind)
        body = self._current(kind, name)
        own = body["metadata"]
        odd: list[Callable[[], Any]] = [lambda: None] * 5 + [
            lambda: own.pop("resourceVersion"),
            lambda: own.update(resourceVersion="@{old:" + self._key(kind, name) + "}"),
            lambda: own.update(resourceVersion=self.r.choice(["x", "0", "99999999", "-1"])),
            lambda: own.update(uid="@{uid:" + self._key(kind, name) + "}"),
            lambda: own.update(uid="11111111-1111-4111-8111-111111111111"),
            lambda: own.update(name="other"), lambda: own.pop("name"), lambda: own.update(namespace="other"),
            lambda: body.update(kind="Other"), lambda: body.pop("kind"), lambda: body.update(apiVersion="v7"),
            lambda: own.update(finalizers=["x.y/z"]), lambda: own.update(generation=77), lambda: own.update(creationTimestamp=None),
            lambda: own.update(ownerReferences=[{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "b", "controller": True}] * 2),
            lambda: body.update(spoiled(self.r, body, protect=("name", "resourceVersion"))),
        ]  # fmt: skip
        self.r.choice(odd)()
        if kind in SUBRESOURCES and self.r.random() < 0.4:
            section = "/status"
            body["status"] = self.r.choice(
                [{"phase": "Running"}, {"phase": "Running", "ready": 2}, {}, None, {"unknown": 1}, {"replicas": "x"}]
            )
        elif self.r.random() < 0.2:
            body["status"] = {"phase": "Running"}
        query = self.r.choice(["", "", "", "?dryRun=All", "?fieldValidation=Strict"])
        yield _call(f"put{section} {kind.plural}", "PUT", kind.path(self.namespace, name) + section + query, body)
        yield Call(f"get {kind.plural}", "GET", kind.path(self.namespace, name))

    def patch(self) -> Iterator[Call]:
        kind = self._kind()
        name = self._name(kind)
        section = "/status" if kind in SUBRESOURCES and self.r.random() < 0.25 else ""
        query = self.r.choice(
            ["", "", "", "?dryRun=All", "?fieldValidation=Strict", "?fieldValidation=Ignore", "?force=true"]
        )
        sent, body = self._merge_patch(kind, name) if self.r.random() < 0.5 else self._json_patch(kind)
        yield _call(
            f"{sent.partition('/')[2][:5]}{section} {kind.plural}",
            "PATCH",
            kind.path(self.namespace, name) + section + query,
            body,
            {"Content-Type": sent},
        )
        yield Call(f"get {kind.plural}", "GET", kind.path(self.namespace, name))

    def _merge_patch(self, kind: Resource, name: str) -> tuple[str, Any]:
        key = self._key(kind, name)
        body = self.r.choice([
            {"metadata": {"labels": {"app": self.r.choice(["a", "b", "c"])}}}, {"metadata": {"labels": None}}, {"metadata": {"labels": {"app": None, "tier": "x"}}}, {"metadata": {"annotations": {"a": "b"}}},
            {"metadata": {"finalizers": self.r.choice([["x.y/z"], [], None, ["bad"], ["orphan"]])}}, {"metadata": {"name": "other"}}, {"metadata": {"uid": "x"}}, {"metadata": {"namespace": "other"}},
            {"metadata": {"resourceVersion": "@{old:" + key + "}", "labels": {"app": "b"}}}, {"metadata": {"resourceVersion": "@{rv:" + key + "}", "labels": {"app": "c"}}},
            {"metadata": {"generation": 9, "creationTimestamp": None, "deletionTimestamp": "2030-01-01T00:00:00Z"}}, {"metadata": {"generateName": "g"}}, {"metadata": None}, {"metadata": {"labels": {"a": 1}}},
            {"spec": None}, {"spec": {}}, {"spec": {"size": self.r.choice([1, 5, "x", None, 1.5, 2.0, -1])}}, {"spec": {"unknown": 1}}, {"status": {"phase": "Running"}}, {"status": None}, {"kind": "Other"},
            {"apiVersion": "v9"}, {"unknown": {"a": 1}}, {}, [], 3, None, "x", {"data": {"c": "ZA=="}}, {"spec": self._body(kind, name).get("spec")}, {"spec": {"suspend": True, "weight": 7}},
            {"spec": {"containers": [{"name": "main", "image": "other"}]}}, {"spec": {"activeDeadlineSeconds": 5}}, {"spec": {"terminationGracePeriodSeconds": 1}}, {"spec": {"nodeName": "n2"}},
            {"metadata": {"labels": {"app": "ü"}}}, {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "X", "name": "x"}]}}, {"status": {"ready": 3, "conditions": []}}, {"spec": {"weight": 0}},
            {"spec": {"torchTaskSpecs": {"Worker": {"numTasks": self.r.choice([2, 0, None])}}}}, {"status": {"conditions": [{"type": "Ready", "status": "True"}]}},
        ])  # fmt: skip
        kinds = (
            [MERGE] * 6
            + [STRATEGIC] * 2
            + ["application/json", "application/yaml", "", "text/plain", "application/merge-patch+json; charset=utf-8"]
        )
        return self.r.choice(kinds), body

    def _json_patch(self, kind: Resource) -> tuple[str, Any]:
        labels, spec = "/metadata/labels", "/spec/size" if kind == WIDGETS else "/spec/suspend"
        one = [
            {"op": "add", "path": labels, "value": {"app": "b"}}, {"op": "add", "path": labels + "/app", "value": "c"}, {"op": "remove", "path": labels + "/app"}, {"op": "replace", "path": labels + "/app", "value": "a"},
            {"op": "test", "path": labels + "/app", "value": "a"}, {"op": "test", "path": "/metadata/name", "value": "nope"}, {"op": "test", "path": "/nothing", "value": None}, {"op": "move", "from": labels, "path": "/metadata/annotations"},
            {"op": "copy", "from": labels, "path": "/metadata/annotations"}, {"op": "move", "from": "/nothing", "path": "/a"}, {"op": "copy", "from": "/x/y", "path": "/a"}, {"op": "nope", "path": "/a"}, {"path": "/a"},
            {"op": "add", "path": "a", "value": 1}, {"op": "add", "path": "", "value": {}}, {"op": "remove", "path": "/metadata"}, {"op": "remove", "path": "/nothing"}, {"op": "replace", "path": "/nothing", "value": 1},
            {"op": "add", "path": spec, "value": self.r.choice([1, 2.5, "x", None, True])}, {"op": "replace", "path": spec, "value": 7}, {"op": "add", "path": "/metadata/finalizers/-", "value": "x.y/z"}, {"op": "add", "path": "/a~1b", "value": 1},
            {"op": "add", "path": "/metadata/finalizers", "value": ["x.y/z"]}, {"op": "remove", "path": "/metadata/finalizers/0"}, {"op": "remove", "path": "/metadata/finalizers/7"}, {"op": "remove", "path": "/metadata/finalizers"},
            {"op": "replace", "path": "/metadata/name", "value": "other"}, {"op": "replace", "path": "/metadata/resourceVersion", "value": "1"}, {"op": "add", "path": "/status", "value": {"phase": "Running"}}, {"op": "add", "path": labels},
            {"op": "replace", "path": "", "value": []}, {"op": "add", "path": "/metadata/labels/a/b", "value": 1}, {"op": "replace", "path": "/kind", "value": "Other"}, {"op": "test", "path": "/spec/size", "value": 1.0},
        ]  # fmt: skip
        body: Any = self.r.choices(one, k=self.r.choice([1, 1, 2, 3]))
        if self.r.random() < 0.08:
            body = self.r.choice([[], {}, "x", [1], [None], None, [{"op": 1}], [{"op": "add", "path": 1}]])
        return JSON_PATCH, body

    def scale(self) -> Iterator[Call]:
        kind = WIDGETS if self.r.random() < 0.9 else self._kind()
        name = self._name(kind)
        where = kind.path(self.namespace, name) + "/scale"
        body: Any = {
            "apiVersion": "autoscaling/v1",
            "kind": "Scale",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {"replicas": self.r.choice([0, 3, -1, 200, "x", 1.5, None])},
        }
        own = body["metadata"]
        odd: list[Callable[[], Any]] = [lambda: None] * 4 + [
            lambda: own.update(resourceVersion="@{rv:" + self._key(kind, name) + "}"), lambda: own.update(resourceVersion="1"), lambda: own.pop("name"), lambda: body.update(kind="Other"),
            lambda: own.update(name="other"), lambda: body.pop("spec"), lambda: body.update(extra=1), lambda: own.update(uid="x"), lambda: body.pop("apiVersion"), lambda: own.pop("namespace"),
        ]  # fmt: skip
        self.r.choice(odd)()
        patch = self.r.choice(
            [
                {"spec": {"replicas": self.r.choice([4, -2, None, "x", 1000])}},
                {"spec": None},
                {},
                {"spec": {"other": 1}},
                {"metadata": {"labels": {"a": "b"}}},
                {"status": {"replicas": 9}},
            ]
        )
        query = self.r.choice(["", "", "?dryRun=All", "?fieldValidation=Strict"])
        yield self.r.choice([Call("scale", "GET", where), _call("scale", "PUT", where + query, body), _call("scale", "PATCH", where + query, patch, {"Content-Type": MERGE}),
                             _call("scale", "PATCH", where, [{"op": "replace", "path": "/spec/replicas", "value": 2}], {"Content-Type": JSON_PATCH})])  # fmt: skip
        yield Call(f"get {kind.plural}", "GET", kind.path(self.namespace, name))

    def bind(self) -> Iterator[Call]:
        name = self._name(PODS)
        body: Any = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name},
            "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
        }
        self.r.choice([lambda: None, lambda: None, lambda: body["target"].pop("name"), lambda: body.pop("target"), lambda: body["target"].update(kind="Pod"), lambda: body["metadata"].update(uid="x"),
                       lambda: body["metadata"].update(name="other"), lambda: body.update(kind="Other"), lambda: body["metadata"].update(annotations={"a": "b"}), lambda: body["metadata"].pop("name")])()  # fmt: skip
        where = self.r.choice(
            [PODS.path(self.namespace, name) + "/binding", f"/api/v1/namespaces/{self.namespace}/bindings"]
        )
        yield self._post("create", PODS, self._body(PODS, name))
        yield _call("bind", "POST", where + self.r.choice(["", "", "?dryRun=All"]), body)
        yield Call("get pods", "GET", PODS.path(self.namespace, name))

    def evict(self) -> Iterator[Call]:
        name = self._name(PODS)
        body: Any = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        self.r.choice(
            [
                lambda: None,
                lambda: body.update(deleteOptions={"gracePeriodSeconds": 0}),
                lambda: body["metadata"].update(name="other"),
                lambda: body.update(kind="Other"),
                lambda: body.update(deleteOptions={"dryRun": ["All"]}),
            ]
        )()
        yield _call("evict", "POST", PODS.path(self.namespace, name) + "/eviction", body)
        yield Call("get pods", "GET", PODS.path(self.namespace, name))

    def delete(self) -> Iterator[Call]:
        kind = self._kind()
        name = self._name(kind)
        key = self._key(kind, name)
        body = self.r.choice([
            None, None, {}, {"preconditions": {"uid": "@{uid:" + key + "}"}}, {"preconditions": {"uid": "x"}}, {"preconditions": {"resourceVersion": "@{rv:" + key + "}"}}, {"preconditions": {"resourceVersion": "1"}},
            {"gracePeriodSeconds": self.r.choice([0, 5, -1, 1])}, {"propagationPolicy": self.r.choice(["Background", "Foreground", "Orphan", "Nope", ""])}, {"orphanDependents": self.r.choice([True, False])},
            {"dryRun": ["All"]}, {"dryRun": ["Some"]}, {"kind": "DeleteOptions", "apiVersion": "v1"}, {"kind": "Pod", "apiVersion": "v1"}, {"unknown": 1}, {"gracePeriodSeconds": "x"}, [], "x", {"preconditions": "x"},
            {"orphanDependents": True, "propagationPolicy": "Background"}, {"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"}, {"preconditions": {"uid": "x", "resourceVersion": "1"}},
        ])  # fmt: skip
        query = self.r.choice(
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
        yield _call(f"delete {kind.plural}", "DELETE", kind.path(self.namespace, name) + query, body)
        yield Call(f"get {kind.plural}", "GET", kind.path(self.namespace, name))

    def delete_quietly(self, kind: Resource, name: str) -> Call:
        return _call(
            f"delete {kind.plural}",
            "DELETE",
            kind.path(self.namespace, name),
            {"gracePeriodSeconds": 0} if kind == PODS else None,
        )

    def delete_many(self) -> Iterator[Call]:
        kind = self._kind()
        where = kind.path(self.namespace)
        if not kind.namespaced:
            where += "?fieldSelector=metadata.name=" + self._name(kind)
        else:
            where += self.r.choice(
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
            yield _call(
                f"delete many {kind.plural}",
                "DELETE",
                where,
                self.r.choice([None, None, {"gracePeriodSeconds": 0}, {"preconditions": {"uid": "x"}}]),
            )

    def strange_path(self) -> Iterator[Call]:
        kind = self._kind()
        where, name = kind.path(self.namespace), self._name(kind)
        path, method = self.r.choice([
            (where, "PUT"), (where, "PATCH"), (f"{where}/{name}", "POST"), (f"{where}/{name}/status", "POST"), (f"{where}/{name}/status", "DELETE"), (f"{where}/{name}/nothing", "GET"), (f"{where}/{name}/scale", "DELETE"),
            (kind.path(), "POST"), (kind.path(), "DELETE") if kind.namespaced else (kind.path(), "PUT"), ("/apis/nobody.example.com/v1/things", "GET"), ("/api/v1/things", "GET"), ("/api/v2", "GET"), ("/api/v1/namespaces/x/things", "GET"), ("/nothing", "GET"),
            (where + "/", "GET"), (where, "HEAD"), (where, "OPTIONS"), ("/apis/example.com/v1/namespaces/x", "GET"), ("/apis/example.com/v2/widgets", "GET"), (f"{where}/{name}/", "GET"), ("//api/v1/pods", "GET"), ("/api/v1/pods/x", "GET"),
            ("/api/v1/watch/nothing", "GET"), ("/apis/", "POST"), ("/version", "POST"), (f"/api/v1/namespaces/{self.namespace}/nodes", "GET"), ("/apis/apps/v2/deployments", "GET"), (f"{where}/{name}/status/more", "GET"), ("/api/v1/namespaces/nowhere/pods", "GET"),
            ("/api/v1/namespaces/nowhere/pods/x", "GET"), (f"/api/v1/namespaces/{self.namespace}/pods/{name}/log", "POST"), (f"/api/v1/namespaces/{self.namespace}/pods/{name}/binding", "GET"), (f"{where}/{name}", "TRACE"),
            (f"/api/v1/namespaces/{self.namespace}/finalize", "PUT"),
        ])  # fmt: skip
        yield Call("path", method, path, "{}" if method in {"POST", "PUT", "PATCH"} else None)

    def discover(self) -> Iterator[Call]:
        path = self.r.choice(["/healthz", "/livez", "/readyz", "/healthz/ping", "/readyz/nothing", "/api", "/apis/nobody", "/apis/nobody/v1", "/api/v1/", "/apis/example.com", "/apis/example.com/v1",
                              "/apis/train.distributed.io/v1alpha1", "/apis/train.distributed.io"])  # fmt: skip
        yield Call("discovery", "GET", path)

    def stranger(self) -> Iterator[Call]:
        word = self.r.choice(["Bearer wrong", "bearer wrong"])
        method = self.r.choice(["GET", "POST", "DELETE"])
        path = self.r.choice([self._kind().path(self.namespace), "/api", "/apis", "/nothing", "/openapi/v2"])
        yield Call("stranger", method, path, None, (("Authorization", word),))

    def accept(self) -> Iterator[Call]:
        kind = self._kind()
        sort = self.r.choice(
            [
                "application/yaml",
                "text/html",
                "*/*",
                "application/json;q=0.5",
                "application/xml",
                "application/json, */*",
                "application/vnd.kubernetes.protobuf",
                "application/cbor",
                "application/*",
            ]
        )
        if "proto" in sort and (kind.namespaced or True):
            sort = (
                "application/vnd.kubernetes.protobuf, application/json"
                if kind in {WIDGETS, TORCHJOBS, TENANT_QUEUES}
                else "application/json"
            )
        yield Call("accept", "GET", kind.path(self.namespace, self._name(kind)), None, (("Accept", sort),))

    def watch_oddly(self) -> Iterator[Call]:
        kind = self.r.choice([WIDGETS, PODS])
        query = self.r.choice([
            "resourceVersion=", "resourceVersion=0", "resourceVersion=x", "resourceVersion=-1", "resourceVersion=99999999999", "resourceVersion=@{listrv}", "resourceVersionMatch=NotOlderThan", "sendInitialEvents=true", "fieldSelector=a=b", "labelSelector=a b",
            "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", "sendInitialEvents=false&resourceVersion=0", "resourceVersionMatch=Exact&resourceVersion=5", "limit=1", "continue=x", "timeoutSeconds=x", "allowWatchBookmarks=x",
            "sendInitialEvents=true&resourceVersionMatch=NotOlderThan", "sendInitialEvents=true&resourceVersionMatch=Exact", "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=0", "labelSelector=app%3Da",
            "sendInitialEvents=false&resourceVersionMatch=NotOlderThan", "sendInitialEvents=x", "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=@{listrv}&allowWatchBookmarks=true",
        ])  # fmt: skip
        yield Call(
            "watch odd",
            "GET",
            f"{kind.path(self.namespace)}?watch={self.r.choice(['1', 'true', 'true', 'x'])}&timeoutSeconds=1&{query}",
        )
        if self.r.random() < 0.3:
            yield Call(
                "watch odd",
                "GET",
                f"{kind.path(self.namespace, self._name(kind))}?watch=1&timeoutSeconds=1&resourceVersion=0",
            )


_TELLERS: dict[Callable[[Story], Iterator[Call]], int] = {
    Story.create: 6, Story.create_spoiled: 6, Story.create_odd: 6, Story.create_raw: 4, Story.read: 3, Story.list: 6, Story.pages: 1, Story.put: 7, Story.patch: 10, Story.scale: 3, Story.bind: 2, Story.evict: 1,
    Story.delete: 5, Story.delete_many: 1, Story.strange_path: 3, Story.discover: 1, Story.stranger: 1, Story.accept: 1,
}  # fmt: skip
_ = (STRANGE, SECRETS)


def _quoted(text: str) -> str:
    return text.replace("%", "%25").replace("&", "%26").replace("=", "%3D").replace("+", "%2B")


def _call(label: str, method: str, path: str, body: Any, headers: dict[str, str] | None = None) -> Call:
    text = None if body is None and method == "DELETE" else json.dumps(body)
    return Call(label, method, path, text, tuple((headers or {}).items()))
