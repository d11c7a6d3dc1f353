"""The checks of an installation: each check finds its fault, and no other check finds it."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from deploy import chart, matrix
from deploy.checks import installation, schemas
from deploy.checks.objects import describe

NEWEST = schemas.versions()[-1:]
EVERYTHING = chart.render(matrix.EVERYTHING)
NAME, COMPONENT = "app.kubernetes.io/name", "app.kubernetes.io/component"

Objects = dict[str, Any]
Fault = Callable[[Objects], object]


def _pod(found: Objects, name: str) -> Any:
    return found[f"Deployment torchq-system/torchq-{name}"]["spec"]["template"]


def _container(found: Objects, name: str = "worker") -> Any:
    return _pod(found, name)["spec"]["containers"][0]


def _of(found: Objects, kind: str, name: str = "torchq-coordinator") -> Any:
    return found[f"{kind} torchq-system/{name}"]["spec"]


FAULTS: dict[str, tuple[Fault, str]] = {
    "a Service of all pods": (
        lambda found: _of(found, "Service")["selector"].pop(COMPONENT),
        "Service torchq-system/torchq-coordinator picks pods of ",
    ),
    "a Service of nobody": (
        lambda found: _of(found, "Service")["selector"].update({NAME: "torch"}),
        "Service torchq-system/torchq-coordinator picks pods of no component",
    ),
    "a Service with a port that pods do not have": (
        lambda found: _of(found, "Service")["ports"][0].update(targetPort="web"),
        "port http leads to web (None)",
    ),
    "a Service with another number": (
        lambda found: _of(found, "Service")["ports"][1].update(port=8091),
        "port reports leads to reports (8090)",
    ),
    "a selector with the version": (
        lambda found: _of(found, "Deployment")["selector"]["matchLabels"].update(
            {"app.kubernetes.io/version": "1.2.3-rc.1"}
        ),
        "its selector uses label app.kubernetes.io/version",
    ),
    "a budget of another component": (
        lambda found: _of(found, "PodDisruptionBudget")["selector"]["matchLabels"].update({COMPONENT: "worker"}),
        "PodDisruptionBudget torchq-system/torchq-coordinator picks pods of ['worker'], and means coordinator",
    ),
    "a budget of everything": (
        lambda found: _of(found, "PodDisruptionBudget")["selector"].update(matchLabels={}),
        "its selector picks every pod",
    ),
    "a spread over other pods": (
        lambda found: _pod(found, "worker")["spec"]["topologySpreadConstraints"][0]["labelSelector"][
            "matchLabels"
        ].update({COMPONENT: "redis"}),
        "Deployment torchq-system/torchq-worker picks pods of ['redis']",
    ),
    "a policy with a port that is not there": (
        lambda found: _of(found, "NetworkPolicy")["ingress"][0]["ports"][0].update(port="web"),
        "names port web",
    ),
    "a policy that lets everybody in": (
        lambda found: _of(found, "NetworkPolicy", "torchq-worker-metrics")["ingress"][0].pop("from"),
        "lets in everybody",
    ),
    "an API that everybody reaches": (
        lambda found: _of(found, "NetworkPolicy", "torchq-dashboard-asks")["ingress"][0].pop("from"),
        "NetworkPolicy torchq-system/torchq-dashboard-asks has a rule that lets in everybody",
    ),
    "an Ingress to another Service": (
        lambda found: _of(found, "Ingress", "torchq-dashboard")["rules"][0]["http"]["paths"][0]["backend"][
            "service"
        ].update(name="torchq-coordinator"),
        "Ingress torchq-system/torchq-dashboard leads to Service torchq-coordinator",
    ),
    "an Ingress to the metrics of nobody": (
        lambda found: _of(found, "Ingress", "torchq-dashboard")["rules"][0]["http"]["paths"][0]["backend"]["service"][
            "port"
        ].update(name="web"),
        "Ingress torchq-system/torchq-dashboard leads to port web",
    ),
    "an Ingress with the certificate of another host": (
        lambda found: _of(found, "Ingress", "torchq-dashboard")["tls"][0].update(hosts=["example.com"]),
        "has TLS for other hosts than torchq.example.org",
    ),
    "a dashboard that asks nobody": (
        lambda found: next(
            each for each in _container(found, "dashboard")["env"] if each["name"] == "TORCHQ_COORDINATOR"
        ).update(value="http://torchq.torchq-system.svc:8080"),
        "the dashboards ask http://torchq.torchq-system.svc:8080, which is not there",
    ),
    "metrics that any namespace reaches": (
        lambda found: _of(found, "NetworkPolicy", "torchq-worker-metrics")["ingress"][0]["from"][0].update(
            namespaceSelector={}
        ),
        "lets pods of any namespace read the metrics",
    ),
    "a Redis that jobs reach": (
        lambda found: _of(found, "NetworkPolicy", "torchq-redis")["ingress"][0]["from"][0].update(namespaceSelector={}),
        "lets in pods of other namespaces",
    ),
    "a Redis that its users do not reach": (
        lambda found: _of(found, "NetworkPolicy", "torchq-redis")["ingress"][0]["from"][0]["podSelector"][
            "matchExpressions"
        ][0]["values"].remove("doctor"),
        "lets in ['coordinator', 'worker'], and ['coordinator', 'doctor', 'worker'] use it",
    ),
    "a server without a policy": (
        lambda found: [found.pop(f"NetworkPolicy torchq-system/torchq-worker{part}") for part in ("", "-metrics")],
        "no NetworkPolicy protects the pods of Deployment torchq-system/torchq-worker",
    ),
    "a ServiceMonitor of two Services": (
        lambda found: _of(found, "ServiceMonitor")["selector"]["matchLabels"].pop(COMPONENT),
        "ServiceMonitor torchq-system/torchq-coordinator picks ",
    ),
    "a ServiceMonitor of another port": (
        lambda found: _of(found, "ServiceMonitor")["endpoints"][0].update(port="http"),
        "scrapes port http",
    ),
    "a ServiceMonitor of another namespace": (
        lambda found: _of(found, "ServiceMonitor")["namespaceSelector"].update(matchNames=["default"]),
        "ServiceMonitor torchq-system/torchq-coordinator picks []",
    ),
    "a probe of a port that is not there": (
        lambda found: _container(found)["livenessProbe"]["httpGet"].update(port="http"),
        "livenessProbe asks port http",
    ),
    "a container that runs as root": (
        lambda found: _pod(found, "redis")["spec"]["securityContext"].pop("runAsNonRoot"),
        "may run as root",
    ),
    "a container that keeps capabilities": (
        lambda found: _container(found)["securityContext"].pop("capabilities"),
        "keeps capabilities",
    ),
    "a container without a limit": (
        lambda found: _container(found)["resources"].pop("limits"),
        "has no limit of memory",
    ),
    "a Redis with a token": (
        lambda found: _pod(found, "redis")["spec"].update(automountServiceAccountToken=True),
        "automountServiceAccountToken is True",
    ),
    "a pod with variables about Services": (
        lambda found: _pod(found, "worker")["spec"].pop("enableServiceLinks"),
        "gets variables about Services",
    ),
    "a worker without a token": (
        lambda found: _pod(found, "worker")["spec"].update(automountServiceAccountToken=False),
        "automountServiceAccountToken is False",
    ),
    "a variable that is no setting": (
        lambda found: _container(found)["env"].append({"name": "TORCHQ_METRIC_PORT", "value": "1"}),
        "sets TORCHQ_METRIC_PORT, which is no setting",
    ),
    "a variable with an impossible value": (
        lambda found: _container(found)["env"].append({"name": "TORCHQ_THREADS", "value": "1e+06"}),
        "setting threads",
    ),
    "a port that the process does not open": (
        lambda found: _container(found, "coordinator")["ports"].pop(0),
        "listens at 8080 for http",
    ),
    "too little time to end": (
        lambda found: _pod(found, "worker")["spec"].update(terminationGracePeriodSeconds=90),
        "has 90 s to end, and drains for 90.0 s",
    ),
    "a Secret that nobody makes": (
        lambda found: found.pop("Secret torchq-system/torchq-redis"),
        "names Secret torchq-redis, which is not there",
    ),
    "an account that nobody makes": (
        lambda found: found.pop("ServiceAccount torchq-system/torchq-worker"),
        "names ServiceAccount torchq-worker, which is not there",
    ),
    "a binding of a role that is not there": (
        lambda found: found.pop("ClusterRole torchq-user"),
        "binds ClusterRole torchq-user, which is not there",
    ),
    "users who may reach another Service": (
        lambda found: found["ClusterRole torchq-queue-admin"]["rules"][-1].update(resourceNames=["http:other:http"]),
        "users may reach ['http:other:http', 'http:torchq-coordinator:http', 'http:torchq-recorder:http']",
    ),
    "an account that may read all Secrets": (
        lambda found: found["Role torchq-system/torchq-secrets"]["rules"][0].pop("resourceNames"),
        "grants ['get', 'patch'] of ['secrets']",
    ),
    "an object without a label": (
        lambda found: found["ConfigMap torchq-system/torchq-settings"]["metadata"]["labels"].pop(COMPONENT),
        f"ConfigMap torchq-system/torchq-settings lacks label {COMPONENT}",
    ),
    "an object without the user's label": (
        lambda found: found["ConfigMap torchq-system/torchq-settings"]["metadata"]["labels"].pop("cost-center"),
        "lacks label cost-center",
    ),
    "a Service that begins with a digit": (
        lambda found: found["Service torchq-system/torchq-redis"]["metadata"].update(name="1-redis"),
        "Service torchq-system/1-redis has a name that no Service may have",
    ),
    "an object in no namespace": (
        lambda found: found["Service torchq-system/torchq-redis"]["metadata"].pop("namespace"),
        "must have a namespace only if its kind is namespaced",
    ),
    "a field that is not there": (
        lambda found: _of(found, "Deployment").update(replica=3),
        "Deployment torchq-system/torchq-coordinator (",
    ),
}


def _problems(documents: list[chart.Manifest]) -> list[str]:
    return installation.problems(documents, NEWEST, labels=matrix.EVERYTHING["commonLabels"])


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_and_named(name: str) -> None:
    break_it, said = FAULTS[name]
    found = {describe(each): each for each in copy.deepcopy(EVERYTHING)}
    break_it(found)
    problems = _problems(list(found.values()))
    assert any(said in problem for problem in problems), problems


def test_an_object_that_is_there_twice_is_named() -> None:
    assert _problems([*EVERYTHING, EVERYTHING[0]])[0] == f"{describe(EVERYTHING[0])} is there 2 times"
