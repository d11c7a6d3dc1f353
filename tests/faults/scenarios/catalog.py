"""All scenarios by name, and the creation of a scenario's initial cluster."""

from crds import labels
from crds.api_resources import NODES, POD_GROUPS, PODS, TENANT_QUEUES, TORCHJOBS
from kube.api import Manifest
from tests.faults.api import ApiClient
from tests.faults.scenarios import autoscaling, failures, gangs, hangs, models, nodes, people, queues, requests, resizes
from tests.faults.scenarios.scenario import FIRST_NODE, NAMESPACE, Scenario, pair

ELSEWHERE = "kube-system"
_ALL = (
    *queues.SCENARIOS,
    *failures.SCENARIOS,
    *gangs.SCENARIOS,
    *hangs.SCENARIOS,
    *resizes.SCENARIOS,
    *requests.SCENARIOS,
    *nodes.SCENARIOS,
    *autoscaling.SCENARIOS,
    *models.SCENARIOS,
)
SCENARIOS = {each.name: each for each in _ALL}


def populate(cluster: ApiClient, scenario: Scenario) -> None:
    """Create the nodes, the queues and the jobs of a scenario."""
    for name in scenario.nodes:
        features = {"declaredFeatures": list(scenario.features)} if scenario.features else {}
        room = {"allocatable": dict(scenario.allocatable)} if scenario.allocatable else {}
        status = {"conditions": [people.ready("True", cluster.now)], **features, **room}
        metadata = {"name": name, "labels": {"rack": name[::-1]}}
        cluster.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status})
    for name, spec in scenario.queues.items():
        body = {"apiVersion": TENANT_QUEUES.api_version, "kind": "TenantQueue", "metadata": {"name": name}}
        cluster.create(TENANT_QUEUES, {**body, "spec": dict(spec)})
    for name, spec in scenario.jobs.items():
        fields = dict(spec)
        body = {"apiVersion": TORCHJOBS.api_version, "kind": "TorchJob", "metadata": {"name": name}}
        policy = {"schedulingPolicy": {"queue": fields.pop("queue", "a"), **fields.pop("schedulingPolicy", {})}}
        cluster.create(TORCHJOBS, {**body, "spec": {"torchTaskSpecs": pair(), **policy, **fields}}, NAMESPACE)
    if not scenario.missing:
        people.install_volcano(cluster)
    if scenario.strangers:
        _populate_with_strangers(cluster, next(iter(scenario.jobs)))
    if scenario.hostile:
        _populate_with_hostile_pods(cluster, next(iter(scenario.queues)))


def _populate_with_strangers(cluster: ApiClient, job: str) -> None:
    """Create foreign objects that look like the objects of a job."""
    uid = cluster.get(TORCHJOBS, job, NAMESPACE)["metadata"]["uid"]
    container = {"name": "torch", "image": "torch:1"}
    pod = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [container]}}
    cluster.create(PODS, {**pod, "metadata": {"name": f"{job}-master-0", "labels": {labels.JOB_UID: uid}}}, ELSEWHERE)
    over = {"status": {"phase": "Succeeded"}}
    cluster.patch(PODS, f"{job}-master-0", over, ELSEWHERE, subresource="status")  # a pod that has ended uses no room
    group = {"apiVersion": POD_GROUPS.api_version, "kind": POD_GROUPS.kind, "spec": {"minMember": 99}}
    cluster.create(POD_GROUPS, {**group, "metadata": {"name": f"{job}-7"}}, NAMESPACE)
    cluster.create(POD_GROUPS, {**group, "metadata": {"name": f"{job}-0", "labels": {labels.JOB_UID: uid}}}, ELSEWHERE)


def _populate_with_hostile_pods(cluster: ApiClient, queue: str) -> None:
    """Create handmade pods on a node: pods of jobs that never existed, and of a job in a queue that does not admit the
    job.
    """
    policy = {"queue": queue}
    body = {"apiVersion": TORCHJOBS.api_version, "kind": "TorchJob", "metadata": {"name": "hostile"}}
    spec = {"torchTaskSpecs": pair(), "schedulingPolicy": policy}
    job = cluster.create(TORCHJOBS, {**body, "spec": spec}, ELSEWHERE)["metadata"]["uid"]
    for number, attempt in enumerate(("1", "2", "0", "9" * 60, "x")):
        for name, uid in (("hostile", job), ("gone", f"never-{number}")):
            cluster.create(PODS, _hostile(f"{name}-{number}", name, uid, queue, attempt), ELSEWHERE)


def _hostile(name: str, job: str, uid: str, queue: str, attempt: str) -> Manifest:
    marks = {labels.JOB_UID: uid, labels.JOB_NAME: job, labels.QUEUE: queue, labels.ATTEMPT: attempt}
    owner = {"apiVersion": TORCHJOBS.api_version, "kind": "TorchJob", "name": job, "uid": uid, "controller": True}
    metadata = {
        "name": name,
        "labels": marks,
        "annotations": {labels.CHARGE: '{"cpu":64000,"jobs":9}', labels.RESTARTS_HANDLED: "9" * 5000},
        "ownerReferences": [owner],
        "finalizers": ["example.org/keep"],
    }
    container = {"name": "torch", "image": "torch:1", "resources": {"requests": {"cpu": "64"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [container], "nodeName": FIRST_NODE},
    }
