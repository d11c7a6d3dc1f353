"""Strategic merge patches: a table of the effect of each directive on a pod, and the same patches through HTTP."""

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crds.api_resources import PODS
from embedded.apiserver.kinds import builtins
from embedded.apiserver.schema import strategic_merge
from embedded.apiserver.status_errors import StatusError
from tests.support.kube.servers import Server

TYPE = strategic_merge.MEDIA_TYPE
SCHEMA = next(kind.schema.source for kind in builtins.KINDS if kind.resource == PODS)


def _pod(**spec: Any) -> dict[str, Any]:
    return {"spec": spec}


def _named(*names: str) -> list[dict[str, Any]]:
    return [{"name": name} for name in names]


TABLE = [
    ("a mapping is merged", {"spec": {"a": {"b": 1}}}, {"spec": {"a": {"c": 2}}}, {"spec": {"a": {"b": 1, "c": 2}}}),
    ("null removes a field", {"spec": {"a": 1, "b": 2}}, {"spec": {"a": None}}, {"spec": {"b": 2}}),
    (
        "a list with a key is merged",
        _pod(containers=[{"name": "a", "image": "x"}, {"name": "b"}]),
        _pod(containers=[{"name": "a", "image": "y"}, {"name": "c"}]),
        _pod(containers=[{"name": "a", "image": "y"}, {"name": "c"}, {"name": "b"}]),
    ),
    (
        "nested lists are merged by their own keys",
        _pod(containers=[{"name": "a", "env": [{"name": "A", "value": "1"}], "ports": [{"containerPort": 1}]}]),
        _pod(containers=[{"name": "a", "env": [{"name": "B"}], "ports": [{"containerPort": 1, "name": "p"}]}]),
        _pod(containers=[{"name": "a", "env": [{"name": "B"}, {"name": "A", "value": "1"}],
                          "ports": [{"containerPort": 1, "name": "p"}]}]),
    ),
    (
        "a list without a key is replaced",
        _pod(tolerations=[{"key": "a"}], containers=[{"name": "a", "command": ["x", "y"]}]),
        _pod(tolerations=[{"key": "b"}], containers=[{"name": "a", "command": ["z"]}]),
        _pod(tolerations=[{"key": "b"}], containers=[{"name": "a", "command": ["z"]}]),
    ),
    ("delete an item", _pod(containers=_named("a", "b")), _pod(containers=[{"$patch": "delete", "name": "a"}]),
     _pod(containers=_named("b"))),
    ("replace a list", _pod(containers=_named("a", "b")), _pod(containers=[{"$patch": "replace"}, {"name": "c"}]),
     _pod(containers=_named("c"))),
    ("replace a mapping", {"spec": {"a": 1, "b": 2}}, {"spec": {"$patch": "replace", "c": 3}}, {"spec": {"c": 3}}),
    ("delete a mapping's content", {"spec": {"a": 1}, "x": 1}, {"spec": {"$patch": "delete"}}, {"spec": {}, "x": 1}),
    (
        "a list of plain values is merged as a set",
        {"metadata": {"finalizers": ["a", "b"]}},
        {"metadata": {"finalizers": ["b", "c"]}},
        {"metadata": {"finalizers": ["a", "b", "c"]}},
    ),
    (
        "values are removed from a set",
        {"metadata": {"finalizers": ["a", "b"]}},
        {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"], "finalizers": ["c"]}},
        {"metadata": {"finalizers": ["c", "b"]}},
    ),
    (
        "items are ordered, and unlisted items keep their place",
        _pod(containers=_named("other", "a", "b")),
        _pod(**{"$setElementOrder/containers": _named("b", "a"), "containers": [{"name": "a", "image": "x"}]}),
        _pod(containers=[{"name": "other"}, {"name": "b"}, {"name": "a", "image": "x"}]),
    ),
    (
        "only the retained keys stay",
        _pod(volumes=[{"name": "v", "emptyDir": {"medium": "Memory"}}]),
        _pod(volumes=[{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x"}}]),
        _pod(volumes=[{"name": "v", "hostPath": {"path": "/x"}}]),
    ),
    ("directives are not stored", {},
     _pod(containers=[{"name": "a", "$patch": "merge"}, {"name": "b", "$patch": "delete"}],
          **{"$setElementOrder/containers": _named("a")}),
     _pod(containers=_named("a"))),
    ("owners are merged by uid", {"metadata": {"ownerReferences": [{"uid": "1", "name": "a"}]}},
     {"metadata": {"ownerReferences": [{"uid": "1", "controller": True}]}},
     {"metadata": {"ownerReferences": [{"uid": "1", "name": "a", "controller": True}]}}),
]  # fmt: skip


@pytest.mark.parametrize(("original", "patch", "result"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_merge_applies_each_directive(original: Any, patch: Any, result: Any) -> None:
    assert strategic_merge.merge(copy.deepcopy(original), copy.deepcopy(patch), SCHEMA) == result


@pytest.mark.parametrize(
    "patch",
    [
        [],
        "text",
        {"spec": {"$patch": "nonsense"}},
        {"spec": {"containers": [{"image": "x"}]}},
        {"spec": {"containers": ["x"]}},
        {"spec": {"$setElementOrder/containers": "x", "containers": []}},
        {"spec": {"volumes": [{"name": "v", "$retainKeys": ["name"], "emptyDir": {}}]}},
    ],
)
def test_invalid_strategic_patch_is_refused(patch: Any) -> None:
    with pytest.raises(StatusError):
        strategic_merge.merge(_pod(containers=_named("a"), volumes=_named("v")), patch, SCHEMA)


CONTAINERS = st.lists(st.sampled_from("abcd"), unique=True, max_size=4)


@settings(deadline=None)
@given(CONTAINERS, CONTAINERS, st.sets(st.sampled_from("abcd")))
def test_strategic_patch_is_idempotent(before: list[str], change: list[str], gone: set[str]) -> None:
    items = [{"name": name, "image": "x"} for name in change if name not in gone]
    deleted = [{"name": name, "$patch": "delete"} for name in sorted(gone)]
    order = [{"name": name} for name in change if name not in gone]
    patch = _pod(**{"containers": items + deleted, "$setElementOrder/containers": order})
    once = strategic_merge.merge(_pod(containers=_named(*before)), copy.deepcopy(patch), SCHEMA)
    twice = strategic_merge.merge(copy.deepcopy(once), copy.deepcopy(patch), SCHEMA)
    assert once == twice
    names = [item["name"] for item in once["spec"]["containers"]]
    assert set(names) == (set(before) | set(change)) - gone
    assert [name for name in names if name in change] == [name for name in change if name not in gone]


def test_servers_apply_and_refuse_strategic_patches(server: Server, namespace: str) -> None:
    """The test sends the patches over HTTP to the embedded server and to a real server."""
    path = PODS.path(namespace)
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "finalizers": ["example.com/a"]},
        "spec": {
            "nodeSelector": {"no": "such"},
            "containers": [{"name": "a", "image": "x"}, {"name": "b", "image": "x"}],
        },
    }
    assert server.send("POST", path, pod)[0] == 201

    def patched(patch: Any) -> Any:
        code, answer = server.send("PATCH", f"{path}/p", patch, TYPE)
        assert code == 200, answer
        return answer

    order = {"$setElementOrder/containers": [{"name": "a"}, {"name": "b"}]}
    answer = patched({"spec": {**order, "containers": [{"name": "b", "image": "y"}]}})
    assert [(c["name"], c["image"]) for c in answer["spec"]["containers"]] == [("a", "x"), ("b", "y")]
    answer = patched({"metadata": {"finalizers": ["example.com/b"], "labels": {"a": "b"}}})
    assert sorted(answer["metadata"]["finalizers"]) == ["example.com/a", "example.com/b"]
    answer = patched({"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/a"]}})
    assert answer["metadata"]["finalizers"] == ["example.com/b"]
    answer = patched({"metadata": {"labels": {"$patch": "replace", "c": "d"}, "finalizers": None}})
    assert answer["metadata"]["labels"] == {"c": "d"}
    assert "finalizers" not in answer["metadata"]
    for refused, code in (
        ({"spec": {"containers": [{"image": "x"}]}}, 500),
        ({"spec": {"$patch": "nonsense"}}, 500),
        ({"spec": {"containers": [{"name": "c", "image": "x"}]}}, 422),
    ):
        assert server.send("PATCH", f"{path}/p", refused, TYPE)[0] == code, refused
    server.send("DELETE", f"{path}/p?gracePeriodSeconds=0")
