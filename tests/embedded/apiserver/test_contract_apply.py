"""Server-side apply by several field managers to one object, on the embedded server and on a real server.

One rule: objects, field owners and conflicts are compared exactly; only times are left out.
"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crds.api_resources import CONFIG_MAPS, PODS, SERVICES
from embedded.apiserver.kinds.builtins import KINDS
from embedded.apiserver.schema import field_sets, server_side_apply
from tests.support.kube.servers import Server
from tests.support.kube.widgets import WIDGETS, pod, widget

APPLY = server_side_apply.MEDIA_TYPE
MERGE = "application/merge-patch+json"


def _config(**data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": data}


def _owners(body: dict[str, Any]) -> dict[str, Any]:
    return {each["manager"]: each["fieldsV1"] for each in body["metadata"]["managedFields"]}


def test_apply_merges_owners_and_reports_conflicts(server: Server, namespace: str) -> None:
    path = CONFIG_MAPS.path(namespace, "c")

    def apply(who: str, query: str = "", **data: str) -> tuple[int, Any]:
        return server.send("PATCH", f"{path}?fieldManager={who}{query}", _config(**data), APPLY)

    code, body = apply("one", a="1", b="2")
    assert (code, _owners(body)) == (201, {"one": {"f:data": {"f:a": {}, "f:b": {}}}})
    again = apply("one", a="1", b="2")[1]
    assert again["metadata"]["resourceVersion"] == body["metadata"]["resourceVersion"]
    code, body = apply("two", a="1", c="3")
    assert (code, body["data"]) == (200, {"a": "1", "b": "2", "c": "3"})
    code, body = apply("two", a="9")
    assert (code, body["reason"]) == (409, "Conflict")
    assert body["message"] == 'Apply failed with 1 conflict: conflict with "one": .data.a'
    assert body["details"]["causes"] == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "one"', "field": ".data.a"}
    ]
    assert apply("two", "&force=true&dryRun=All", a="9")[0] == 200
    code, body = apply("two", "&force=true", a="9")
    assert (code, body["data"]) == (200, {"a": "9", "b": "2"})  # no manager applies c now
    assert _owners(body) == {"one": {"f:data": {"f:b": {}}}, "two": {"f:data": {"f:a": {}}}}
    code, body = server.send("PATCH", f"{path}?fieldManager=plain", {"data": {"a": "7", "z": "1"}}, MERGE)
    assert _owners(body) == {"one": {"f:data": {"f:b": {}}}, "plain": {"f:data": {"f:a": {}, "f:z": {}}}}
    code, body = apply("one", a="0", b="3", z="0")
    assert code == 409
    assert body["message"] == ('Apply failed with 2 conflicts: conflicts with "plain" using v1:\n- .data.a\n- .data.z')
    assert apply("one")[1]["data"] == {"a": "7", "z": "1"}


def test_apply_merges_list_items_by_key(server: Server, namespace: str) -> None:
    path = SERVICES.path(namespace, "s")

    def apply(who: str, *ports: int, **spec: Any) -> tuple[int, Any]:
        named = [{"port": port, "name": f"p{port}"} for port in ports]
        body = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
                "spec": {"clusterIP": "None", "ports": named, **spec}}  # fmt: skip
        return server.send("PATCH", f"{path}?fieldManager={who}", body, APPLY)

    assert apply("one", 80, 81, selector={"a": "b"})[0] == 201
    body = apply("two", 82)[1]
    assert [port["port"] for port in body["spec"]["ports"]] == [80, 81, 82]
    item = {".": {}, "f:name": {}, "f:port": {}}
    assert _owners(body)["two"]["f:spec"]["f:ports"] == {'k:{"port":82,"protocol":"TCP"}': item}
    assert apply("two", 82, selector={"a": "c"})[0] == 409
    body = apply("one", 81)[1]
    assert [port["port"] for port in body["spec"]["ports"]] == [81, 82]
    assert "selector" not in body["spec"]


def test_first_apply_conflicts_with_fields_that_were_set_before(server: Server, namespace: str) -> None:
    server.send("POST", WIDGETS.path(namespace), widget("w", limit=50))
    path = WIDGETS.path(namespace, "w")
    body = {"apiVersion": WIDGETS.api_version, "kind": WIDGETS.kind, "metadata": {"name": "w"}}
    assert server.send("PATCH", f"{path}?fieldManager=one", {**body, "spec": {"limit": 60}}, APPLY)[0] == 409
    code, made = server.send("PATCH", f"{path}?fieldManager=one&force=1", {**body, "spec": {"limit": 60}}, APPLY)
    assert (code, made["spec"]["limit"]) == (200, 60)
    ready = {**body, "status": {"ready": 1}}
    code, made = server.send("PATCH", f"{path}/status?fieldManager=two", ready, APPLY)
    assert (code, made["status"], made["spec"]["limit"]) == (200, {"ready": 1}, 60)
    by = {each["manager"]: each.get("subresource") for each in made["metadata"]["managedFields"]}
    assert (by["one"], by["two"]) == (None, "status")


REFUSED: list[tuple[str, Any, int]] = [
    ("", _config(), 422),
    ("?fieldManager=one", {**_config(), "kind": "Pod"}, 400),
    ("?fieldManager=one", {"kind": "ConfigMap"}, 400),
    ("?fieldManager=one", {**_config(), "metadata": {"name": "d"}}, 400),
    ("?fieldManager=one", {**_config(), "metadata": {"name": "c", "managedFields": []}}, 400),
    ("?fieldManager=one", {**_config(), "unknown": 1}, 500),
    ("?fieldManager=one", {**_config(), "data": {"a": 1}}, 500),
    ("?fieldManager=one", [], 400),
    ("?fieldManager=one", b"a: [", 400),
    ("?fieldManager=one", {**_config(), "metadata": {"name": "c", "labels": {"a b": "c"}}}, 422),
]


def test_invalid_apply_is_refused(server: Server, namespace: str) -> None:
    server.send("POST", CONFIG_MAPS.path(namespace), _config())
    for query, body, code in REFUSED:
        assert server.send("PATCH", CONFIG_MAPS.path(namespace, "c") + query, body, APPLY)[0] == code, body


SCHEMA = next(kind.schema for kind in KINDS if kind.resource == PODS)
NAMES = st.lists(st.sampled_from("abcd"), unique=True, max_size=4)


@given(NAMES, NAMES, NAMES)
def test_apply_sets_the_items_of_its_manager_and_keeps_those_of_others(
    live: list[str], first: list[str], second: list[str]
) -> None:
    def wish(who: str, names: list[str], image: str) -> server_side_apply.ApplyRequest:
        manager = server_side_apply.Manager(server_side_apply.APPLY, who, "v1")
        containers = [{"name": name, "image": image} for name in names]
        return server_side_apply.ApplyRequest(pod(containers=containers), SCHEMA, manager, "now", force=True)

    made = server_side_apply.apply(
        pod(containers=[{"name": name, "image": "0"} for name in live]), wish("one", first, "1")
    )
    made = server_side_apply.apply(made, wish("two", second, "2"))
    images = {each["name"]: each["image"] for each in made.get("spec", {}).get("containers") or ()}
    assert images == {**dict.fromkeys(live, "0"), **dict.fromkeys(first, "1"), **dict.fromkeys(second, "2")}
    assert server_side_apply.apply(made, wish("two", second, "2")) == made
    for owned in server_side_apply.owners(made).values():
        assert frozenset(field_sets.from_fields_v1(field_sets.to_fields_v1(owned.fields))) == owned.fields
    left = server_side_apply.apply(made, wish("two", [], "2"))
    kept = {each["name"] for each in left.get("spec", {}).get("containers") or ()}
    assert kept == set(live) | set(first)


def test_list_item_with_fields_of_another_manager_keeps_its_key() -> None:
    def wish(names: list[str]) -> server_side_apply.ApplyRequest:
        config = pod(containers=[{"name": name, "image": "1"} for name in names])
        return server_side_apply.ApplyRequest(
            config, SCHEMA, server_side_apply.Manager(server_side_apply.APPLY, "one", "v1"), "now", force=True
        )

    live = server_side_apply.apply(pod(containers=[]), wish(["a", "b"]))
    image = ("f:spec", "f:containers", 'k:{"name":"b"}', "f:image")
    owners = server_side_apply.owners(live)
    owners[server_side_apply.Manager(server_side_apply.UPDATE, "two", "v1")] = server_side_apply.OwnedFields(
        frozenset([image]), "now"
    )
    live["metadata"]["managedFields"] = server_side_apply.managed_fields(owners)
    left = server_side_apply.apply(live, wish([]))
    assert left["spec"]["containers"] == [{"name": "b", "image": "1"}]


def test_managed_fields_match_the_format_of_kubernetes(server: Server, namespace: str) -> None:
    body = pod(containers=[{"name": "a", "image": "i", "env": [{"name": "A", "value": "1"}], "command": ["x"]}])
    body["metadata"] |= {"labels": {"l": "1"}, "finalizers": ["example.com/a"]}
    code, made = server.send("PATCH", PODS.path(namespace, "p") + "?fieldManager=one", body, APPLY)
    assert code == 201
    container = {".": {}, "f:name": {}, "f:image": {}, "f:command": {},
                 "f:env": {'k:{"name":"A"}': {".": {}, "f:name": {}, "f:value": {}}}}  # fmt: skip
    fields = _owners(made)["one"]
    assert fields["f:metadata"] == {"f:labels": {"f:l": {}}, "f:finalizers": {'v:"example.com/a"': {}}}
    assert fields["f:spec"]["f:containers"] == {'k:{"name":"a"}': container}
    server.send("PATCH", PODS.path(namespace, "p"), {"metadata": {"finalizers": None}}, MERGE)


@pytest.mark.parametrize("force", [False, True])
def test_apply_with_an_old_resource_version_conflicts_even_if_forced(
    server: Server, namespace: str, force: bool
) -> None:
    server.send("POST", CONFIG_MAPS.path(namespace), _config())
    body = {**_config(), "metadata": {"name": "c", "resourceVersion": "1"}}
    query = f"?fieldManager=one&force={str(force).lower()}"
    assert server.send("PATCH", CONFIG_MAPS.path(namespace, "c") + query, body, APPLY)[0] == 409
