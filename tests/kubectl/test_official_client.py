"""The official Python client, typed and dynamic, on the embedded server and on a real server."""

import itertools
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes import client as official
from kubernetes import config as official_config
from kubernetes import dynamic
from kubernetes import watch as official_watch
from kubernetes.client.exceptions import ApiException

from tests.support.kube.servers import Server
from tests.support.kubectl.things import job, pod
from tests.support.waiting import until

_NUMBERS = itertools.count(1)
GROUP, VERSION = "train.distributed.io", "v1alpha1"


@pytest.fixture
def api(server: Server) -> Iterator[official.ApiClient]:
    configuration = official.Configuration()
    official_config.load_kube_config(str(server.kubeconfig), client_configuration=configuration)
    with official.ApiClient(configuration) as found:
        yield found


@pytest.fixture
def namespace(api: official.ApiClient) -> str:
    name = f"official-{next(_NUMBERS)}"
    official.CoreV1Api(api).create_namespace(official.V1Namespace(metadata=official.V1ObjectMeta(name=name)))
    return name


def _pod(name: str) -> official.V1Pod:
    container = official.V1Container(
        name="main", image="none", command=["true"], env=[official.V1EnvVar(name="A", value="1")]
    )
    return official.V1Pod(
        metadata=official.V1ObjectMeta(name=name, labels={"app": name}),
        spec=official.V1PodSpec(containers=[container], restart_policy="Never", node_selector={"no": "such"}),
    )


def test_typed_client_creates_changes_and_deletes_pods(api: official.ApiClient, namespace: str) -> None:
    core = official.CoreV1Api(api)
    made = core.create_namespaced_pod(namespace, _pod("p"))
    assert (made.metadata.uid, made.spec.containers[0].env[0].value, made.status.phase)[1:] == ("1", "Pending")
    patch = {"spec": {"containers": [{"name": "main", "image": "other"}]}, "metadata": {"labels": {"x": "y"}}}
    patched = core.patch_namespaced_pod("p", namespace, patch)
    assert patched.spec.containers[0].image == "other"
    assert patched.spec.containers[0].command == ["true"]
    assert patched.metadata.labels == {"app": "p", "x": "y"}
    patched.metadata.annotations = {"note": "replaced"}
    assert core.replace_namespaced_pod("p", namespace, patched).metadata.annotations == {"note": "replaced"}
    stale = _pod("p")
    stale.metadata.resource_version = made.metadata.resource_version
    with pytest.raises(ApiException) as conflict:
        core.replace_namespaced_pod("p", namespace, stale)
    assert conflict.value.status == 409
    assert [each.metadata.name for each in core.list_namespaced_pod(namespace, label_selector="x=y").items] == ["p"]
    assert core.delete_namespaced_pod("p", namespace, grace_period_seconds=0).metadata.name == "p"
    with pytest.raises(ApiException) as gone:
        core.read_namespaced_pod("p", namespace)
    assert (gone.value.status, json.loads(gone.value.body)["reason"]) == (404, "NotFound")


def test_typed_client_creates_and_reads_other_objects(api: official.ApiClient, namespace: str) -> None:
    core = official.CoreV1Api(api)
    meta = official.V1ObjectMeta(name="c")
    core.create_namespaced_config_map(namespace, official.V1ConfigMap(metadata=meta, data={"a": "b"}))
    core.create_namespaced_secret(namespace, official.V1Secret(metadata=meta, string_data={"a": "b"}))
    assert core.read_namespaced_secret("c", namespace).data == {"a": "Yg=="}
    port = official.V1ServicePort(port=80)
    spec = official.V1ServiceSpec(cluster_ip="None", selector={"a": "b"}, ports=[port])
    core.create_namespaced_service(namespace, official.V1Service(metadata=meta, spec=spec))
    assert core.read_namespaced_service("c", namespace).spec.ports[0].protocol == "TCP"
    assert "default" in [each.metadata.name for each in core.list_namespace().items]
    assert official.VersionApi(api).get_code().major == "1"


def test_list_of_an_unserved_group_is_not_found(embedded_one: Server) -> None:
    configuration = official.Configuration()
    official_config.load_kube_config(str(embedded_one.kubeconfig), client_configuration=configuration)
    with official.ApiClient(configuration) as api, pytest.raises(ApiException) as missing:
        official.AppsV1Api(api).list_namespaced_deployment("default")
    assert missing.value.status == 404
    assert "could not find the requested resource" in missing.value.body


def test_client_watches_typed_and_custom_objects(api: official.ApiClient, namespace: str) -> None:
    core, custom = official.CoreV1Api(api), official.CustomObjectsApi(api)
    seen: list[tuple[str, str]] = []

    def follow() -> None:
        stream = official_watch.Watch().stream(core.list_namespaced_pod, namespace, timeout_seconds=60)
        for event in stream:
            seen.append((event["type"], event["object"].metadata.name))
            if event["type"] == "DELETED":
                return

    following = threading.Thread(target=follow)
    core.create_namespaced_pod(namespace, _pod("p"))
    following.start()
    until(lambda: list(seen))
    core.delete_namespaced_pod("p", namespace, grace_period_seconds=0)
    following.join(90)
    assert (seen[0], seen[-1]) == (("ADDED", "p"), ("DELETED", "p"))
    custom.create_namespaced_custom_object(GROUP, VERSION, namespace, "torchjobs", job())
    start = custom.list_namespaced_custom_object(GROUP, VERSION, namespace, "torchjobs")["metadata"]["resourceVersion"]
    custom.delete_namespaced_custom_object(GROUP, VERSION, namespace, "torchjobs", "j")
    events = official_watch.Watch().stream(
        custom.list_namespaced_custom_object, GROUP, VERSION, namespace, "torchjobs", resource_version=start,
        timeout_seconds=60,
    )  # fmt: skip
    assert next(iter(events))["type"] == "DELETED"


def test_custom_objects_can_be_created_scaled_and_deleted(api: official.ApiClient, namespace: str) -> None:
    custom = official.CustomObjectsApi(api)
    where = (GROUP, VERSION, namespace, "torchjobs")
    custom.create_namespaced_custom_object(*where, job())
    scale = custom.patch_namespaced_custom_object_scale(*where, "j", {"spec": {"replicas": 3}})
    assert scale["spec"]["replicas"] == 3
    custom.patch_namespaced_custom_object_status(*where, "j", {"status": {"restartCount": 1}})
    found = custom.get_namespaced_custom_object(*where, "j")
    assert (found["spec"]["torchTaskSpecs"]["Worker"]["numTasks"], found["status"]["restartCount"]) == (3, 1)
    custom.delete_namespaced_custom_object(*where, "j")


def test_dynamic_client_creates_patches_watches_and_deletes(
    api: official.ApiClient, namespace: str, tmp_path: Any
) -> None:
    found = dynamic.DynamicClient(api, cache_file=str(tmp_path / "discovery"))
    jobs = found.resources.get(api_version=f"{GROUP}/{VERSION}", kind="TorchJob")
    pods = found.resources.get(api_version="v1", kind="Pod")
    assert jobs.create(body=job(), namespace=namespace).metadata.name == "j"
    merge = "application/merge-patch+json"
    jobs.patch(body={"spec": {"suspend": True}}, name="j", namespace=namespace, content_type=merge)
    operations = [{"op": "replace", "path": "/spec/suspend", "value": False}]
    jobs.patch(body=operations, name="j", namespace=namespace, content_type="application/json-patch+json")
    assert jobs.get(name="j", namespace=namespace).spec.suspend is False
    status = {"status": {"restartCount": 4}}
    jobs.status.patch(body=status, name="j", namespace=namespace, content_type=merge)
    assert jobs.status.get(name="j", namespace=namespace).status.restartCount == 4
    jobs.scale.patch(body={"spec": {"replicas": 5}}, name="j", namespace=namespace, content_type=merge)
    assert jobs.get(name="j", namespace=namespace).spec.torchTaskSpecs.Worker.numTasks == 5
    pods.create(body=pod(nodeSelector={"no": "such"}), namespace=namespace)
    pods.patch(body={"metadata": {"labels": {"a": "b"}}}, name="p", namespace=namespace)
    assert [item.metadata.name for item in pods.get(namespace=namespace, label_selector="a=b").items] == ["p"]
    # A busy API server answers 504 where a watch has to begin with the newest version.
    event = next(iter(jobs.watch(namespace=namespace, resource_version="0", timeout=60)))
    assert (event["type"], event["object"].metadata.name) == ("ADDED", "j")
    jobs.delete(name="j", namespace=namespace)
    with pytest.raises(dynamic.exceptions.NotFoundError):
        jobs.get(name="j", namespace=namespace)
    assert json.loads((tmp_path / "discovery").read_text())


def test_typed_client_reads_logs(node_server: Server) -> None:
    configuration = official.Configuration()
    official_config.load_kube_config(str(node_server.kubeconfig), client_configuration=configuration)
    with official.ApiClient(configuration) as api:
        core = official.CoreV1Api(api)
        core.create_namespaced_pod("default", pod("logged", "sh", "-c", "echo one; echo two"))
        stream = official_watch.Watch().stream(
            core.list_namespaced_pod, "default", field_selector="metadata.name=logged", timeout_seconds=60
        )
        assert any(event["object"].status.phase == "Succeeded" for event in stream)
        assert core.read_namespaced_pod_log("logged", "default", tail_lines=1) == "two\n"
        lines = list(official_watch.Watch().stream(core.read_namespaced_pod_log, "logged", "default"))
        assert lines == ["one", "two"]
