"""kubectl shows objects and the server: tables, other output formats, descriptions, documentation."""

import json

from tests.support.kubectl.command import Kubectl, needs_kubectl
from tests.support.kubectl.things import config_map, job, pod

pytestmark = needs_kubectl


def _event(kubectl: Kubectl, kind: str, api_version: str, name: str) -> None:
    own = kubectl.json("get", kind.lower(), name)["metadata"]
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{name}.1"},
        "involvedObject": {"apiVersion": api_version, "kind": kind, "name": name, "namespace": kubectl.namespace,
                           "uid": own["uid"]},
        "reason": "Tried",
        "message": "something was tried",
        "type": "Normal",
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:00Z",
        "count": 1,
        "source": {"component": "tests"},
    }  # fmt: skip
    kubectl("create", "-f", "-", body=event)


def test_get_prints_tables_of_torchjobs(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", body=job("b"))
    kubectl("create", "-f", "-", body=job("a"))
    status = {"status": {"phase": "Running", "restartCount": 2}}
    kubectl("patch", "tj", "a", "--type=merge", "--subresource=status", "-p", json.dumps(status))
    kubectl("label", "tj", "a", "team=x")
    narrow, wide = kubectl.rows("get", "torchjobs"), kubectl.rows("get", "tj", "-o", "wide")
    assert narrow[0] == ["NAME", "PHASE", "QUEUE", "WORKERS", "WANTED", "AGE"]
    assert narrow[1][:3] == ["a", "Running", "2"]
    assert wide[0] == [
        "NAME",
        "PHASE",
        "QUEUE",
        "WORKERS",
        "WANTED",
        "ATTEMPT",
        "RESTARTS",
        "ADMITTED",
        "RUNNING",
        "AGE",
    ]
    assert wide[1][:4] == ["a", "Running", "2", "2"]
    assert [row[0] for row in kubectl.rows("get", "tj", "-l", "team=x", "--no-headers")] == ["a"]
    assert [row[0] for row in kubectl.rows("get", "tj", "--field-selector", "metadata.name!=a", "--no-headers")] == [
        "b"
    ]
    assert [row[0] for row in kubectl.rows("get", "tj", "--chunk-size=1", "--no-headers")] == ["a", "b"]
    assert [row[0] for row in kubectl.rows("get", "tj", "--sort-by=.metadata.creationTimestamp", "--no-headers")]
    everywhere = kubectl.rows("get", "tj", "-A")
    assert everywhere[0][0] == "NAMESPACE"
    assert [kubectl.namespace, "a", "Running"] in [row[:3] for row in everywhere]
    assert kubectl.rows("get", "tj", "--show-labels", "-L", "team")[1][-2:] == ["x", "team=x"]


def test_get_prints_other_output_formats(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", body=config_map(key="value"))
    assert kubectl("get", "cm", "c", "-o", "name") == "configmap/c\n"
    assert kubectl("get", "cm", "c", "-o", "jsonpath={.data.key}") == "value"
    assert kubectl.rows("get", "cm", "c", "-o", "custom-columns=N:.metadata.name,D:.data.key") == [
        ["N", "D"],
        ["c", "value"],
    ]
    assert "key: value" in kubectl("get", "cm", "c", "-o", "yaml")
    assert kubectl("get", "cm", "c", "-o", "go-template={{.data.key}}") == "value"
    assert json.loads(kubectl("get", "--raw", f"/api/v1/namespaces/{kubectl.namespace}/configmaps/c"))["data"]


def test_get_prints_tables_of_built_in_resources(kubectl: Kubectl) -> None:
    """The test compares headers and cells, except ages, on the embedded server and on a real server."""
    kubectl("create", "-f", "-", body=pod(nodeSelector={"no": "such"}))
    kubectl("create", "configmap", "c", "--from-literal=a=b")
    kubectl("create", "secret", "generic", "s", "--from-literal=a=b")
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web"},
        "spec": {"clusterIP": "None", "selector": {"app": "web"}, "ports": [{"name": "a", "port": 80},
                 {"name": "b", "port": 53, "protocol": "UDP"}]},
    }  # fmt: skip
    kubectl("create", "-f", "-", body=service)
    _event(kubectl, "Pod", "v1", "p")
    pods = kubectl.rows("get", "pods", "-o", "wide")
    assert pods[0] == ["NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP", "NODE", "NOMINATED NODE", "READINESS GATES"]
    assert (pods[1][:4], pods[1][5:]) == (["p", "0/1", "Pending", "0"], ["<none>"] * 4)
    services = kubectl.rows("get", "svc", "-o", "wide")
    assert services[0] == ["NAME", "TYPE", "CLUSTER-IP", "EXTERNAL-IP", "PORT(S)", "AGE", "SELECTOR"]
    assert services[1][:5] == ["web", "ClusterIP", "None", "<none>", "80/TCP,53/UDP"]
    assert services[1][6] == "app=web"
    assert kubectl.rows("get", "cm", "c")[0] == ["NAME", "DATA", "AGE"]
    assert kubectl.rows("get", "secret", "s")[1][:3] == ["s", "Opaque", "1"]
    assert kubectl.rows("get", "ns", kubectl.namespace)[1][:2] == [kubectl.namespace, "Active"]
    events = kubectl.rows("get", "events")
    assert events[0] == ["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]
    assert events[1][1:] == ["Normal", "Tried", "pod/p", "something was tried"]
    assert kubectl.rows("get", "crd", "torchjobs.train.distributed.io")[0] == ["NAME", "CREATED AT"]
    everything = kubectl("get", "all")
    assert "pod/p" in everything
    assert "service/web" in everything
    assert "configmap/c" in kubectl("get", "cm,secrets,pods")
    assert "No resources found" in kubectl.try_run("get", "leases").err


def test_describe_shows_objects_with_their_events(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", body={"apiVersion": "v1", "kind": "List", "items": [job(), pod()]})
    _event(kubectl, "TorchJob", "train.distributed.io/v1alpha1", "j")
    _event(kubectl, "Pod", "v1", "p")
    of_job, of_pod = kubectl("describe", "tj", "j"), kubectl("describe", "pod", "p")
    for said, name in ((of_job, "j"), (of_pod, "p")):
        assert said.startswith("Name:")
        assert name in said.splitlines()[0]
        assert "something was tried" in said
    assert "Num Tasks:  2" in of_job
    assert "Status:" in of_pod
    kubectl("create", "service", "clusterip", "s", "--tcp=80", "--clusterip=None")
    assert "80/TCP" in kubectl("describe", "service", "s")
    assert "No resource quota" in kubectl("describe", "ns", kubectl.namespace)


def test_explain_shows_the_documentation_of_fields(kubectl: Kubectl) -> None:
    said = kubectl("explain", "torchjob")
    assert "KIND:       TorchJob" in said
    assert "A distributed PyTorch job" in said
    assert "-required-" in said
    assert "numTasks\t<integer>" in kubectl("explain", "tj.spec.torchTaskSpecs")
    assert "schedulingPolicy\t<Object>" in kubectl("explain", "tj", "--recursive")
    assert "weight" in kubectl("explain", "tq.spec")
    assert "\tcommand\t<[]string>".strip() in kubectl("explain", "pod.spec.containers")
    assert "command" in kubectl("explain", "pod", "--recursive")
    assert "does not exist" in kubectl.refused("explain", "tj.spec.nonsense")


def test_server_lists_its_resources_and_versions(kubectl: Kubectl) -> None:
    resources = kubectl.rows("api-resources", "--api-group=train.distributed.io", "--no-headers")
    assert [[*row[:2], row[-1]] for row in resources] == [
        ["scaleins", "tsi", "ScaleIn"],
        ["scaleouts", "tso", "ScaleOut"],
        ["tenantqueues", "tq", "TenantQueue"],
        ["torchjobs", "tj", "TorchJob"],
    ]
    assert {"pods", "services"} <= set(
        kubectl("api-resources", "--verbs=list,watch", "--namespaced", "-o", "name").split()
    )
    assert {"v1", "train.distributed.io/v1alpha1"} <= set(kubectl("api-versions").split())
    assert "torchjobs.train.distributed.io" in kubectl("api-resources", "--categories=torchq", "-o", "name")
    assert "control plane" in kubectl("cluster-info")
    assert "Server Version: v1." in kubectl("version")
    assert kubectl("auth", "can-i", "create", "torchjobs") == "yes\n"
    assert "Username" in kubectl("auth", "whoami")


def test_kubeconfig_has_one_context(embedded_kubectl: Kubectl) -> None:
    (only,) = embedded_kubectl("config", "get-contexts", "--no-headers").splitlines()
    assert only.split()[:2] == ["*", "torchq-local"]
    server = embedded_kubectl("config", "view", "-o", "jsonpath={.clusters[0].cluster.server}")
    assert server.startswith("https://127.0.0.1:")
