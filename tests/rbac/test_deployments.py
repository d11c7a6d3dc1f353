"""deploy/kubernetes fits what it refers to: accounts, settings, commands, and the service that users may reach."""

import ipaddress
from pathlib import Path
from typing import Any

import pytest
import yaml
from click import Context

from coordinator import settings
from coordinator.cli import main
from coordinator.local import supervisor
from coordinator.rbac import manifests, permissions
from coordinator.rbac.permissions import COORDINATOR, WORKER, Role
from crds import labels
from crds.api_resources import Resource
from tests.support.rbac.access import FILES, Granted

FILE = FILES.parent / "kubernetes" / "torchq.yaml"
KINDS = {
    "Service": Resource("", "v1", "services", "Service"),
    "Deployment": Resource("apps", "v1", "deployments", "Deployment"),
    "NetworkPolicy": Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy"),
    "PodDisruptionBudget": Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget"),
}
MANIFESTS = list(yaml.safe_load_all(FILE.read_text()))
DEPLOYMENTS = {each["metadata"]["name"]: each["spec"]["template"] for each in MANIFESTS if each["kind"] == "Deployment"}
PROCESSES = [COORDINATOR, WORKER]
START_OF_END = 5
"""The seconds after a signal in which a process hears it, and after a drain in which it closes its connections."""


def _container(role: Role) -> dict[str, Any]:
    [found] = DEPLOYMENTS[manifests.full_name(role)]["spec"]["containers"]
    return dict(found)


@pytest.mark.parametrize("role", PROCESSES, ids=lambda role: role.name)
def test_a_deployment_runs_its_command_under_its_account(role: Role) -> None:
    spec = DEPLOYMENTS[manifests.full_name(role)]["spec"]
    accounts = [each["metadata"]["name"] for each in yaml.safe_load_all((FILES / f"{role.name}.yaml").read_text())]
    assert spec["serviceAccountName"] in accounts
    [command] = _container(role)["args"]
    assert main.main.get_command(Context(main.main), command) is not None


@pytest.mark.parametrize("role", PROCESSES, ids=lambda role: role.name)
def test_deployment_variables_are_settings_and_its_grace_period_exceeds_a_drain(role: Role, tmp_path: Path) -> None:
    environment = {each["name"]: each["value"] for each in _container(role)["env"]}
    secret = tmp_path / "url"
    secret.write_text("rediss://redis:6379/0\n")
    made = settings.resolve({}, environment | {"TORCHQ_REDIS_URL_FILE": str(secret)}, None).settings
    assert made.redis_url == "rediss://redis:6379/0"
    grace = DEPLOYMENTS[manifests.full_name(role)]["spec"]["terminationGracePeriodSeconds"]
    assert grace >= made.drain_seconds + supervisor.KILL_MARGIN + START_OF_END, "drain_seconds has another default"


@pytest.mark.parametrize("role", PROCESSES, ids=lambda role: role.name)
def test_the_pods_of_a_deployment_are_on_several_nodes_and_leave_one_by_one(role: Role) -> None:
    template = DEPLOYMENTS[manifests.full_name(role)]
    [spread] = template["spec"]["topologySpreadConstraints"]
    assert (spread["topologyKey"], spread["whenUnsatisfiable"]) == ("kubernetes.io/hostname", "ScheduleAnyway")
    [budget] = [
        each["spec"]
        for each in MANIFESTS
        if each["kind"] == "PodDisruptionBudget" and each["metadata"]["name"] == manifests.full_name(role)
    ]
    assert budget["maxUnavailable"] == 1
    for each in (spread["labelSelector"], budget["selector"]):
        assert each["matchLabels"].items() <= template["metadata"]["labels"].items()


def test_the_service_is_the_one_that_users_may_reach_by_proxy() -> None:
    [service] = [each for each in MANIFESTS if each["kind"] == "Service"]
    port = next(each for each in service["spec"]["ports"] if each["name"] == "http")
    assert f"http:{service['metadata']['name']}:{port['name']}" == permissions.SERVICE
    template = DEPLOYMENTS[manifests.full_name(COORDINATOR)]
    assert service["spec"]["selector"].items() <= template["metadata"]["labels"].items()
    there = next(each for each in _container(COORDINATOR)["ports"] if each["name"] == "http")
    assert (there["name"], str(there["containerPort"])) == (
        port["targetPort"],
        next(each["value"] for each in _container(COORDINATOR)["env"] if each["name"] == "TORCHQ_HEALTH_PORT"),
    )


def test_the_network_policy_allows_only_the_api_server_to_reach_coordinators() -> None:
    policy = _policy("torchq-coordinator")
    [deployment] = [
        each for each in MANIFESTS if each["metadata"]["name"] == "torchq-coordinator" and "replicas" in each["spec"]
    ]
    assert policy["metadata"]["namespace"] == deployment["metadata"]["namespace"]
    assert policy["spec"]["podSelector"] == deployment["spec"]["selector"], "the coordinators and no other pods"
    assert policy["spec"]["policyTypes"] == ["Ingress"], "the coordinators connect to the API server and to Redis"
    [rule] = policy["spec"]["ingress"]
    assert rule["ports"] == [{"protocol": "TCP", "port": "http"}]
    assert "http" in {each["name"] for each in _container(COORDINATOR)["ports"]}
    peers = {name: peer for each in rule["from"] for name, peer in each.items()}
    assert peers.keys() == {"ipBlock", "namespaceSelector"}, "one without peers would let in everything"
    assert ipaddress.ip_network(peers["ipBlock"]["cidr"]) == ipaddress.ip_network("192.0.2.0/24"), (
        "an example's address"
    )
    assert peers["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "kube-system"}


def test_pods_of_jobs_reach_the_port_for_reports_at_the_address_that_they_get() -> None:
    [service] = [each for each in MANIFESTS if each["kind"] == "Service"]
    port = next(each for each in service["spec"]["ports"] if each["name"] == "reports")
    [there] = [each for each in _container(COORDINATOR)["ports"] if each["name"] == port["targetPort"]]
    environment = {each["name"]: each["value"] for each in _container(COORDINATOR)["env"]}
    assert environment["TORCHQ_REPORT_PORT"] == str(there["containerPort"])
    host = f"{service['metadata']['name']}.{service['metadata']['namespace']}.svc"
    given = {each["name"]: each["value"] for each in _container(WORKER)["env"]}
    assert given["TORCHQ_REPORT_URL"] == f"http://{host}:{port['port']}"
    policy = _policy("torchq-reports")
    assert policy["spec"]["podSelector"] == _policy("torchq-coordinator")["spec"]["podSelector"]
    [rule] = policy["spec"]["ingress"]
    assert rule["ports"] == [{"protocol": "TCP", "port": "reports"}], "nothing of the read-only API"
    jobs = {"matchExpressions": [{"key": labels.JOB_UID, "operator": "Exists"}]}
    assert rule["from"] == [{"namespaceSelector": {}, "podSelector": jobs}]


@pytest.mark.parametrize("role", PROCESSES, ids=lambda role: role.name)
def test_a_deployment_starts_without_the_key_of_reports_and_reads_it_from_a_secret(role: Role) -> None:
    environment = {each["name"]: each["value"] for each in _container(role)["env"]}
    mounts = {each["mountPath"]: each["name"] for each in _container(role)["volumeMounts"]}
    volumes = {each["name"]: each["secret"] for each in DEPLOYMENTS[manifests.full_name(role)]["spec"]["volumes"]}
    path = Path(environment["TORCHQ_REPORT_KEY_FILE"])
    secret = volumes[mounts[str(path.parent)]]
    assert (secret["secretName"], secret["optional"], path.name) == ("torchq-reports", True, "key")
    assert f"create secret generic {secret['secretName']} --from-file={path.name}=" in FILE.read_text()


@pytest.mark.parametrize("role", PROCESSES, ids=lambda role: role.name)
def test_the_kubelet_probes_each_process_at_the_port_that_names_no_job(role: Role) -> None:
    container, [metrics] = _container(role), [each for each in _container(role)["ports"] if each["name"] == "metrics"]
    environment = {each["name"]: each["value"] for each in container["env"]}
    assert environment["TORCHQ_METRICS_PORT"] == str(metrics["containerPort"])
    assert environment["TORCHQ_METRICS_ADDRESS"] == "0.0.0.0", "the kubelet is not in the pod"
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "metrics"}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "metrics"}
    policies = [each["spec"] for each in MANIFESTS if each["kind"] == "NetworkPolicy"]
    labels = DEPLOYMENTS[manifests.full_name(role)]["metadata"]["labels"]
    own = [policy for policy in policies if policy["podSelector"]["matchLabels"].items() <= labels.items()]
    open_ports = {port["port"] for policy in own for rule in policy.get("ingress", ()) for port in rule["ports"]}
    assert own, "a pod without a policy lets in everybody"
    assert "metrics" not in open_ports


def _policy(name: str) -> dict[str, Any]:
    [found] = [each for each in MANIFESTS if each["kind"] == "NetworkPolicy" and each["metadata"]["name"] == name]
    return dict(found)


@pytest.mark.apiserver
@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda each: each["kind"] + "-" + each["metadata"]["name"])
def test_an_api_server_accepts_each_manifest(granted: Granted, manifest: dict[str, Any]) -> None:
    taken = granted.admin.create(KINDS[manifest["kind"]], manifest, manifest["metadata"]["namespace"], dry_run=True)
    assert taken["metadata"]["name"] == manifest["metadata"]["name"]
